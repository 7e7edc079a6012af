"""What is refused before a job starts."""

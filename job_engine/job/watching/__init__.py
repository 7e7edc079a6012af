"""What is looked at beside a job: its backlog, its memory, its metrics and its health."""

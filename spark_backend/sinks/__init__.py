"""From tagged rows to files."""

"""What Ensue keeps in a checkpoint: its record, locks, progress and totals."""

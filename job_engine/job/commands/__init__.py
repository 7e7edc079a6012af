"""What users ask of a job while it runs, or for its next start."""

"""Commands that ask something of a job, or care for its checkpoint."""

"""Changes of the queries of a job, between two micro-batches."""

"""Queries that have run over what a job has read before they were deployed, in its buckets."""

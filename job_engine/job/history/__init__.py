"""Queries that begin with history: the records that a job has read before they were deployed."""

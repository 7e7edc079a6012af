"""Queries on Spark Structured Streaming. Importing this package imports no Spark."""

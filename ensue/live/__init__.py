"""Queries that are open for rows that come bit by bit, without Spark."""

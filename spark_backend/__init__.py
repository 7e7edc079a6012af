"""Queries on Spark: transport, operator, sources, sinks, deployments. Importing it imports no Spark."""

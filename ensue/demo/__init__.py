"""Patterns in a year of real flights, found embedded and on Spark: `python -m ensue.demo`."""

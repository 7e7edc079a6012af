"""A job as a streaming query of Spark: its source, its operator, and what workers run."""

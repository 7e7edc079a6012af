"""DataFrames in, DataFrames out, for users' programs."""

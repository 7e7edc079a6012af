"""The meaning of values, expressions and statements, in plain Python."""

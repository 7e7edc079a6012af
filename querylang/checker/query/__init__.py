"""Check one query: inputs, pattern, clauses, parameters."""

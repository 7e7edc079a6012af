"""A deployment file as nodes with lines, and the values that many settings have."""

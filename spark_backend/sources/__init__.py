"""From files and DataFrames to packed rows."""

"""Arrow and numpy columns: arrivals, keys, timestamps, vectorised expressions."""

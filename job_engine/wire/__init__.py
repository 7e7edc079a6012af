"""What travels between driver, workers and state, and to which bucket: plain data and bytes."""

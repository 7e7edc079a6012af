"""What travels between driver, workers and state: plain data and bytes."""

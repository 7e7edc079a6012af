"""What a worker runs for one bucket and one micro-batch."""

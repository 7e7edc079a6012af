"""One bucket, one micro-batch; only worker_functions knows that Spark calls it."""

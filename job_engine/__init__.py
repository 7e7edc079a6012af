"""Jobs: a deployment at work, whatever drives its micro-batches."""

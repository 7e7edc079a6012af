"""Streaming jobs: the deployment file, the checkpoint, a run from start to end, its status."""

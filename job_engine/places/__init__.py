"""Where a job's files are: local paths, and paths in stores such as S3, with one interface."""

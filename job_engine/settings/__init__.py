"""Deployment files: every setting of a job, read and checked; needs no driver."""

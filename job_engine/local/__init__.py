"""The driver of jobs on one machine: a loop here, and workers that read and hold buckets."""

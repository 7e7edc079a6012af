"""The stages of a job: prepare, start, watch, change, stop."""

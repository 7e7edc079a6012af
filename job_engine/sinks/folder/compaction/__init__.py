"""Many small files of results become few, beside readers and a job that writes more."""

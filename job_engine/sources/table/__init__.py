"""Delta tables as sources: the lister plans commits, workers read exactly their data files."""

"""Which event tables a user means: files, folders, patterns, stores, standard input."""

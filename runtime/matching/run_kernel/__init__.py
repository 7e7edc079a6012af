"""The kernel of patterns with repeats, optional steps, `=>`, `prev`, folds, and of `find all`."""

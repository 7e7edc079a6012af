"""Sources of files in a deployment: their settings, and what the lister has to know of them."""

"""A deployment file, its checkpoint, its life."""

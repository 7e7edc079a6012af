"""Patterns written for other engines to query files: only what means the same."""

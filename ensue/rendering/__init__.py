"""Results as text and tables."""

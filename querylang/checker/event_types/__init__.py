"""Event definitions to schemas."""

"""Commands that write query texts."""

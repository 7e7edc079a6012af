"""Check the statements of blocks and actions."""

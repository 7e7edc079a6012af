"""Sources in folders of files."""

"""Folders of files as sinks: Parquet, CSV or JSON, as any reader of folders takes them."""

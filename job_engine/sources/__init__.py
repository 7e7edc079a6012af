"""From somewhere to packed rows: one file per kind of source."""

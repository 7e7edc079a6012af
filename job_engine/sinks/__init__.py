"""From tagged rows to somewhere: one file per kind of sink."""

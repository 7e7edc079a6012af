"""One file per table format; each reads into a `RawTable`."""

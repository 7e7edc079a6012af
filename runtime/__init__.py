"""The runtime: records in, matches out; see `docs/architecture.md`."""

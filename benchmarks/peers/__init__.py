"""Ensue beside others: the same pattern over the same stream, with equal checksums of matches."""

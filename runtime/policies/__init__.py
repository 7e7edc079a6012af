"""Ordering policies: what users can set about time, how it is written, and what holds per input."""

"""Which records count, with which time, and when they are released in order."""

"""The answer to a single event: found in Python, because a call of the engine costs more."""

"""A bounded table through the engine."""

"""Find matches in ordered events."""

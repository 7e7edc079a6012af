"""What comes out of the engine, as tables."""

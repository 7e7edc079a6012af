"""Ordered events to matches."""

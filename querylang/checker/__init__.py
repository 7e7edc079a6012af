"""Syntax tree to checked query: names, types, every mistake with its place."""

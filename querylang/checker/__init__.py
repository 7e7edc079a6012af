"""Check syntax trees: names, types, every mistake with its place; make a plan per query."""

"""Check syntax trees: names, types, every mistake with its place; the result is a plan per query."""

"""Tables that a deployment calls by their names in a catalog."""

"""What names mean: event schemas, namespaces, scopes of blocks."""

"""Text to syntax tree: lexer, grammar, parser, recovery."""

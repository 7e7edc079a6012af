"""The queries of a checkpoint as plain data: what runs, since when, and what the files said."""

"""Changes of the queries of a job: what runs, since when, and what the files said."""

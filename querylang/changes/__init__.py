"""Changes of the queries that run: from their texts to the plans of the times between them."""

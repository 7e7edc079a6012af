"""Types of fields by what the data shows, where nobody has defined them."""

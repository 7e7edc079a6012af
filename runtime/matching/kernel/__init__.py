"""The compiled matcher: tables and programs for a query, and the kernels that run them."""

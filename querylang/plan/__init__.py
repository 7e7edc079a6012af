"""The plan: all that runtime may know of a query, as frozen data with a dict form."""

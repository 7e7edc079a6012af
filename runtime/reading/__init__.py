"""Files and tables to columns of arrivals."""

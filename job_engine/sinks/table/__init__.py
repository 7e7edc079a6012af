"""Delta tables as sinks: tasks write data files, the driver commits them."""

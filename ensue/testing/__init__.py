"""Case files, and the pytest plugin that runs them."""

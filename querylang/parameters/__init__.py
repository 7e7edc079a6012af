"""Template plan and parameter values to the plan of instances."""

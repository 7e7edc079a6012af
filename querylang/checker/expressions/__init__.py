"""Types of expressions, and the plan's expressions made from them."""

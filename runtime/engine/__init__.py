"""One plan at work: state, calls, metrics."""

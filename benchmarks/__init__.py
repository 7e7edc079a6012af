"""What is measured, and against what: `make bench`. Figures are ratios of medians within one run, both sides alternating."""

"""Processes in the background, and what they make: machine code of kernels, archives of classes."""

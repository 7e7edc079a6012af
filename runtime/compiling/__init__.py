"""Kernels: how their Python becomes machine code, and where that is stored."""

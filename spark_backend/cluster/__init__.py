"""Executors on other machines: their number, what they have installed, and Ensue sent to them."""

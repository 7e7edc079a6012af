"""Processes of a session: the JVM, and Pythons that fork from one that has loaded it all."""

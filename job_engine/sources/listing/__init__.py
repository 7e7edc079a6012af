"""What a job reads, and when: new files in order, on record before the driver knows of them.

All modules import only the standard library, because the process that lists files has to start
fast.
"""

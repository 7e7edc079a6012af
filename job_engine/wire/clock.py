"""What "now" is for a streaming job: the setting `clock` of a deployment file.

A file of its own without imports, so that `ensue check` reads deployment files quickly.
"""

from __future__ import annotations

from enum import StrEnum


class Clock(StrEnum):
    """What "now" is for a job."""

    ARRIVAL = "arrival"
    """The arrival time that all source partitions have reached."""
    PROCESSING = "processing"
    """The timestamp of the micro-batch that processes a record."""

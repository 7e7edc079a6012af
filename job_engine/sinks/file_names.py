"""The names of files of results: which checkpoint, micro-batch and task wrote them."""

from __future__ import annotations

import re

RESULT_FILE = re.compile(
    r"(?P<identity>[0-9a-f]{12})-(?P<batch>[0-9]{8,18})-(?P<number>[0-9]{5,18})(?P<suffix>[.](?:parquet|json|csv))"
)
"""The name of the `MicroBatch`, the number of the task, the suffix."""

FIRST_COMPACTED = 200_000
"""Numbers from here on belong to no task: compaction wrote these files."""

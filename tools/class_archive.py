"""Make the archive of Spark's classes, if this machine has none: each JVM of the tests then starts in half the time."""

from __future__ import annotations

import sys

from ensue.archive_classes import archive_classes
from querylang.errors import EnsueError
from spark_backend.launch.session_settings import archive_file


def main() -> None:
    """Make it if it is missing; without it the tests take longer, and find the same."""
    file = archive_file()
    if file is None or file.exists():
        return
    try:
        archive_classes()
    except (OSError, EnsueError) as error:
        sys.stderr.write(f"the archive of Spark's classes was not made: {error}\n")


if __name__ == "__main__":
    main()

"""`python -m ensue`, and the program `ensue`: the command line."""

from __future__ import annotations

import sys

from job_engine.stopping import SIGNAL_EXIT, Stopped, StopRequest


def main() -> None:
    """Run the command line; signals are noticed while it is imported, too."""
    try:
        with StopRequest() as stop, stop.noticed_at_once():
            from ensue.cli import main as run
    except Stopped as stopped:
        sys.exit(SIGNAL_EXIT + stopped.number)
    run()


if __name__ == "__main__":
    main()

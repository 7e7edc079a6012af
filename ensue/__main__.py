"""`python -m ensue`, and the program `ensue`: the command line.

Until a context for signals is there, Ctrl-C ends the process as the system does, without a
traceback of Python.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # `signal` imports more, for a while
import sys

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

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

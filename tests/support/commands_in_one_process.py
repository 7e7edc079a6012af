"""Run commands of Ensue one after another in this process; prints what became of each as JSON, a line each.

`python -m tests.support.commands_in_one_process` reads a list of argument lists from standard input.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from ensue.cli import main


def outcome(arguments: list[str]) -> dict[str, object]:
    """Exit code and what was printed."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    sys.argv = ["ensue", *arguments]
    code: object = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    texts = {}
    for name, stream in (("out", out), ("err", err)):
        stream.flush()
        texts[name] = stream.buffer.getvalue().decode()  # type: ignore[attr-defined] # a BytesIO
    return {"code": code, **texts}


if __name__ == "__main__":
    for given in json.load(sys.stdin):
        sys.stdout.write(json.dumps(outcome(given)) + "\n")

"""The command line: registers the commands, and turns errors into exit codes.

Exit codes: 0 success; 1 the user's input is wrong, or a check found a difference; 2 wrong usage;
3 a failure of Ensue itself. A command imports what it needs when it runs, so that `ensue check`,
which needs the language only, starts fast.
"""

from __future__ import annotations

import os
import sys
import traceback

import typer

from ensue.commands.check import check
from ensue.commands.explain import explain
from ensue.commands.fmt import fmt
from ensue.commands.match import match
from ensue.commands.output import print_error
from ensue.commands.replay import replay
from ensue.commands.run import run
from ensue.commands.status import status
from ensue.commands.verify import verify
from querylang.errors import EnsueError

OUR_FAILURE = 3

app = typer.Typer(
    name="ensue",
    help="Pattern queries over event streams and tables.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (check, fmt, explain, replay, match, run, status, verify):
    app.command()(command)


def main() -> None:
    """Run the command line; a user's mistake is printed without a traceback."""
    try:
        app()
    except EnsueError as error:
        print_error(str(error))
        sys.exit(1)
    except BrokenPipeError:  # the reader of our output has closed it: nothing is left to do
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception:  # noqa: BLE001  our own failure, whatever it is
        traceback.print_exc()
        print_error("ensue: this is a failure of Ensue itself, not of your input")
        sys.exit(OUR_FAILURE)


if __name__ == "__main__":
    main()

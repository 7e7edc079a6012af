"""The command line: registers the commands, and turns errors into exit codes.

`ExitCode` in `querylang.errors` has the codes, and each error says which one is its own. A command
imports what it needs when it runs, so that `ensue check`, which needs the language only, starts
fast.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from functools import cache
from typing import Annotated, Any

import typer

from ensue.commands.all_commands import COMMANDS
from ensue.commands.common import print_error, print_failure, print_line, write_nowhere, write_out
from ensue.commands.json_log import asks_for_objects, begin_beside, end_beside
from job_engine.stopping import SIGNAL_EXIT, Stopped, StopRequest
from querylang.errors import EnsueError, ExitCode, exit_code_of
from querylang.printable import forget_secrets, printable
from querylang.system_errors import has_way_out, refused
from runtime.progress_line import tell_on
from runtime.threads import COLLECTIONS

_WrongUsage: Any = typer.BadParameter.__mro__[1]
"""`UsageError`, which versions of typer keep in different places."""


def _print_version(is_asked: bool) -> None:
    if is_asked:
        import ensue

        print_line(f"ensue {ensue.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Pattern queries over event streams and tables."""


@cache
def command_line(*names: str) -> Any:
    """What typer makes of the commands of these names; it takes its time for each."""
    app = typer.Typer(
        name="ensue",
        help="Pattern queries over event streams and tables.",
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for name in names:
        app.command(name)(COMMANDS[name])
    return typer.main.get_command(app)


def _command_line_for(arguments: list[str]) -> Any:
    """With the command that is asked for; with all for `--help`, completion, unknown names."""
    is_known = bool(arguments) and arguments[0] in COMMANDS and "_ENSUE_COMPLETE" not in os.environ
    return command_line(*([arguments[0]] if is_known else COMMANDS))


def main() -> None:
    """Run the command line; a user's mistake is printed without a traceback."""
    gc.set_threshold(*COLLECTIONS)
    with StopRequest() as stop:
        if asks_for_objects(sys.argv[1:]):
            begin_beside()
        try:
            with stop.noticed_at_once():
                _run()
        except (Stopped, KeyboardInterrupt) as error:  # the latter from handlers of libraries
            number = error.number if isinstance(error, Stopped) else signal.SIGINT
            print_error(f"ended by {signal.Signals(number).name}")
            sys.exit(SIGNAL_EXIT + number)
        finally:
            end_beside()


def _run() -> None:
    tell_on(sys.stderr)
    forget_secrets()
    _take_name_of_shell(sys.argv[1:])
    try:
        code = _command_line_for(sys.argv[1:])(prog_name="ensue", standalone_mode=False) or 0
        write_out()
        sys.exit(code)
    except EnsueError as error:
        print_error(str(error))
        sys.exit(exit_code_of(error))
    except BrokenPipeError:  # the reader of our output has closed it: nothing is left to do
        write_nowhere()
        sys.exit(0)
    except MemoryError as error:
        print_error("not enough memory: give the process more, or divide the tables into smaller ones")
        sys.exit(exit_code_of(error))
    except OSError as error:
        if not has_way_out(error):
            print_failure()
            sys.exit(ExitCode.OURS)
        plain = refused(error, error.filename or "a file that Ensue needs")
        print_error(str(plain))
        sys.exit(exit_code_of(plain))
    except typer.Abort as error:  # what Ctrl-C has become
        raise KeyboardInterrupt from error
    except Exception as error:  # noqa: BLE001  our own failure, whatever it is
        _refuse_wrong_usage(error)
        print_failure()
        sys.exit(exit_code_of(error))


def _take_name_of_shell(arguments: list[str]) -> None:
    """Let `--show-completion zsh` name a shell.

    typer takes a name only where it does not look for the shell itself, and ignores it elsewhere.
    """
    if len(arguments) > 1 and arguments[0] in {"--install-completion", "--show-completion"}:
        os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"


def _refuse_wrong_usage(error: Any) -> None:
    """Print typer's message and end, if this is wrong usage; names of files may be in it."""
    if isinstance(error, _WrongUsage):
        error.message = printable(error.message)
        error.show()
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()

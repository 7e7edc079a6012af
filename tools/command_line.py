"""Make `docs/cli.md` from the commands themselves, with the examples of `docs/cli.yaml`.

`tools/reference.py` writes the page; a test holds that it is up to date, and that every command and
every option has an example.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ensue.cli import command_line
from ensue.commands.all_commands import COMMANDS
from tools.prose import filled

EXAMPLES = Path(__file__).resolve().parent.parent / "docs" / "cli.yaml"

HEAD = """\
# The command line

<!-- Written by tools/reference.py from the commands and cli.yaml; do not edit. -->
"""

ABOUT = (
    "Every command, with an example behind its form, and every option. Results are printed to standard output, errors and remarks to standard "
    "error. The exit code is 0 if all is well, 1 if the input is wrong or a check found a difference, 2 if the command was "
    "not used as described here, 3 if Ensue itself failed, 4 if it was ended by something that "
    "[may be over by itself](jobs.md#exit-codes). `ensue --version` "
    "prints the version, `-h` after any command its options. `ensue --install-completion` completes commands and options "
    "in your shell."
)

SHARED = """\
## Options of event tables
"""

ALSO = "With `--json` a command prints one JSON object. Commands that change a job have these:"

NEXT = (
    "Next: [getting started](getting-started.md) uses the first of them, [jobs](jobs.md) and [changing and caring for "
    "a job](care.md) the others; [Python](python.md) has the same as functions."
)

OF_MANY = 4
"""An option that so many commands have with the same words is said once for all of them."""

OF_TABLES = ["explain", "replay", "match", "verify"]
"""The commands that read event tables."""


@cache
def examples() -> dict[str, dict[str, str]]:
    """By command and option; of the command itself by an empty text."""
    document: dict[str, dict[str, str]] = yaml.safe_load(EXAMPLES.read_text())
    return document


def commands() -> Mapping[str, Any]:
    """The commands by name, as typer made them."""
    found: Mapping[str, Any] = command_line(*COMMANDS).commands
    return found


def options(command: Any) -> list[Any]:
    """The options of a command, without `--help`."""
    return [item for item in command.params if item.param_type_name == "option"]


def example_of(name: str, option: str) -> str | None:
    """An option that commands share has its example at `replay`."""
    given = examples()
    found = given.get(name, {}).get(option)
    if found is None and name in ("match", "verify"):
        found = given["replay"].get(option, "").replace("ensue replay", f"ensue {name}") or None
        found = f"{found} --out matches" if found is not None and name == "match" else found
    return found


def page() -> str:
    """The whole page."""
    index = ", ".join(f"[`{name}`](#ensue-{name})" for name in commands())
    parts = [HEAD, filled(ABOUT), filled(index), *map(_section, commands())]
    parts += [SHARED, _table(_shared_rows(of_tables=True)), ALSO, _table(_shared_rows(of_tables=False)), filled(NEXT)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


@cache
def shared_options() -> dict[str, list[str]]:
    """The commands of each option that many have with the same words, in their order; `--json` is one of its own."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, command in commands().items():
        for item in options(command):
            found.setdefault((item.opts[0], item.help), []).append(name)
    return {option: names for (option, _), names in found.items() if len(names) >= OF_MANY}


def _section(name: str) -> str:
    command = commands()[name]
    shared = [option for option, names in shared_options().items() if name in names]
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    usage = " ".join(["ensue", name, *(item.metavar for item in arguments)])
    parts = [f"## ensue {name}", _paragraphs(f"`{usage}`: {inspect.cleandoc(command.help or '')}")]
    parts += [f"`{example}`"] if (example := example_of(name, "")) != usage else []
    told = [item for item in arguments if getattr(item, "help", None) and item.metavar != "FILE"]
    parts += ["\n".join(filled(f"`{item.metavar}`: {item.help}", "- ") for item in told)] if told else []
    own = [item for item in options(command) if item.opts[0] not in shared]
    if own:
        parts.append(_table(_row(name, item) for item in own))
    if shared:
        also = ["those of [event tables](#options-of-event-tables)"] if name in OF_TABLES else []
        also += [f"`{option}`" for option in shared if shared_options()[option] != OF_TABLES]
        parts.append(filled(f"{'Also' if own else 'Options'}: {', '.join(also)}."))
    return "\n\n".join(part.strip("\n") for part in parts)


def _paragraphs(text: str) -> str:
    return "\n\n".join(map(filled, text.split("\n\n")))


def _table(rows: Iterable[str]) -> str:
    return "\n".join(["| option | |", "|---|---|", *rows])


def _shared_rows(*, of_tables: bool) -> Iterator[str]:
    for option, names in shared_options().items():
        if option != "--json" and of_tables == (names == OF_TABLES):
            name = "replay" if of_tables else names[0]
            yield _row(name, next(item for item in options(commands()[name]) if item.opts[0] == option))


def _row(name: str, item: Any) -> str:
    default = _default(item)
    said = item.help + ("" if default is None else f" Default: `{default}`.") + (" Required." if item.required else "")
    if item.type.name == "choice":
        said += f" One of {', '.join(f'`{choice}`' for choice in item.type.choices)}."
    cells = [f"`{_shown(item, example_of(name, item.opts[0]) or '')}`", said]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _shown(item: Any, example: str) -> str:
    """The option as its example has it, with its value."""
    found = re.search(rf"{item.opts[0]}(?: (\"[^\"]*\"|'[^']*'|\S+))?", example)
    assert found is not None
    return item.opts[0] if item.is_flag else found[0]


def _default(item: Any) -> str | None:
    found = getattr(item.default, "value", item.default)
    return None if item.is_flag or found is None or item.required else str(found)

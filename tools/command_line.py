"""Make `docs/cli.md` from the commands themselves, with the examples of `docs/cli.yaml`.

`tools/reference.py` writes the page; a test holds that it is up to date, and that every command and
every option has an example.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
import yaml

from ensue.cli import app

EXAMPLES = Path(__file__).resolve().parent.parent / "docs" / "cli.yaml"

HEAD = """\
# The command line

<!-- Written by tools/reference.py from the commands and cli.yaml; do not edit. -->

Results are printed to standard output, errors and remarks to standard error. The exit code is 0 if all is well, 1 if the
input is wrong or a check found a difference, 2 if the command was not used as described here, 3 if Ensue itself failed,
4 if a broker or a storage does not answer.
`ensue --version` prints the version, `-h` after any command its options. `ensue --install-completion` completes commands and options in your shell.
"""


def examples() -> dict[str, dict[str, str]]:
    """By command and option; of the command itself by an empty text."""
    document: dict[str, dict[str, str]] = yaml.safe_load(EXAMPLES.read_text())
    return document


def commands() -> Mapping[str, Any]:
    """The commands by name, as typer made them."""
    group: Any = typer.main.get_command(app)
    found: Mapping[str, Any] = group.commands
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
    return "\n\n".join(part.strip("\n") for part in [HEAD, index, *map(_section, commands())]) + "\n"


def _section(name: str) -> str:
    command = commands()[name]
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    usage = " ".join(["ensue", name, *(item.metavar for item in arguments)])
    parts = [
        f"## ensue {name}",
        f"`{usage}`",
        inspect.cleandoc(command.help or ""),
        f"```text\n{example_of(name, '')}\n```",
    ]
    told = [f"- `{item.metavar}`: {item.help}" for item in arguments if getattr(item, "help", None)]
    parts += ["\n".join(told)] if told else []
    if options(command):
        rows = ["| option | type | default | | example |", "|---|---|---|---|---|"]
        parts.append("\n".join([*rows, *_rows(name, command)]))
    return "\n\n".join(parts)


def _rows(name: str, command: Any) -> Iterator[str]:
    for item in options(command):
        default = "required" if item.required else _default(item)
        cells = [f"`{item.opts[0]}`", _type(item), default, item.help, f"`{example_of(name, item.opts[0])}`"]
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _type(item: Any) -> str:
    if item.is_flag:
        return "switch"
    kinds = {"str": "text", "path": "path", "int range": "number", "integer": "number"}
    if item.type.name == "choice":
        return ", ".join(f"`{choice}`" for choice in item.type.choices)
    return kinds[item.type.name] + (", repeatable" if item.multiple else "")


def _default(item: Any) -> str:
    if item.is_flag:
        return "off"
    return "none" if item.default is None else f"`{getattr(item.default, 'value', item.default)}`"

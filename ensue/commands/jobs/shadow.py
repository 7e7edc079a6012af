"""`ensue shadow` and `ensue diff`: try a changed query beside the one that runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ensue.commands.jobs.changes import QueryFile, text_of
from ensue.commands.jobs.control import AtTime, NoWait, print_sent
from ensue.commands.options import DeploymentFile, Json
from ensue.commands.output import print_json, print_line
from querylang.errors import counted

if TYPE_CHECKING:
    from job_engine.job.upkeep.results import QueryDifference

MOST_SHOWN = 20
"""Matches of each query that are printed; with `--json`, all are."""


def shadow(
    file: DeploymentFile, query: QueryFile, at: AtTime = None, no_wait: NoWait = False, as_json: Json = False
) -> None:
    """Let a changed query run beside the one of its name, to compare what they find."""
    from job_engine.job.commands import send_shadow
    from job_engine.settings.deployment_file import load_deployment

    sent = send_shadow(load_deployment(file), text_of(query), str(query), at=at, wait=not no_wait)
    print_sent(sent.sent, as_json=as_json)
    if not as_json:
        for name, own in sent.names.items():
            print_line(f"'{own}' runs beside '{name}': compare them with `ensue diff {file} {name} {own}`")
            print_line(f"end it with `ensue undeploy {file} {own}`")


def diff(
    file: DeploymentFile,
    first: Annotated[str, typer.Argument(metavar="A", help="The name of a query.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The name of another one.")],
    as_json: Json = False,
) -> None:
    """Show which matches only one of two queries of a job has; exit code 1 if there are any."""
    from job_engine.job.upkeep.results import compare_queries

    compared = compare_queries(Path(file), first, second)
    if as_json:
        print_json(compared.to_plain())
    else:
        for line in _lines(compared):
            print_line(line)
    if not compared.found.is_equal:
        raise typer.Exit(1)


def _lines(compared: QueryDifference) -> list[str]:
    from runtime.timestamps import format_time

    found = compared.found
    since = "" if compared.since is None else f" since {format_time(compared.since)}"
    lines = [f"{counted(found.both, 'match', 'matches')} of both{since}"]
    for name, matches in ((compared.first, found.only_first), (compared.second, found.only_second)):
        lines.append(f"{counted(len(matches), 'match', 'matches')} of {name} only")
        lines += _shown(matches)
    return lines


def _shown(matches: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for match in matches[:MOST_SHOWN]:
        rest = {name: value for name, value in match.items() if name not in ("time", "key", "instance") and value}
        key = match.get("key") or {}
        shown = key if isinstance(key, str) else json.dumps(key, ensure_ascii=False)
        lines.append(f"  {match.get('time')}  {shown}  {json.dumps(rest, ensure_ascii=False)}")
    if len(matches) > MOST_SHOWN:
        lines.append(f"  … and {len(matches) - MOST_SHOWN:,} more; all are printed with --json")
    return lines

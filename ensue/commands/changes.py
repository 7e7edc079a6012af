"""Commands that change a job's queries, `ensue deploy` and others, and that send control events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ensue.commands.common import DeploymentFile, Json, print_json, print_line
from querylang.errors import InputError, counted
from querylang.system_errors import refused
from runtime.json_reader import DamagedJson, json_of_text

if TYPE_CHECKING:
    from job_engine.job.commands import Sent
    from job_engine.job.upkeep.results import QueryDifference


# `ensue control`: send a control event to a job.

JOB = "job"
"""The part that answers a change of the queries."""

AtTime = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="The arrival time at which it takes place; default: now.")
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait until the job has taken it.")]


def control(
    file: DeploymentFile,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="`SetDelayedEventsLeeway(5, 20)`, for example.")],
    at: AtTime = None,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Send a control event to a job, and wait until it is taken."""
    from job_engine.deployment_file import load_deployment
    from job_engine.job.commands import send_control

    print_sent(send_control(load_deployment(file), event, at=at, wait=not no_wait), as_json=as_json)


def print_sent(sent: Sent, *, as_json: bool) -> None:
    """What became of a command; exit code 1 if it was wrong."""
    from runtime.timestamps import format_time

    outcome = sent.outcome
    place = None if outcome is None or outcome.time is None else format_time(outcome.time)
    errors = [] if outcome is None else outcome.errors
    if as_json:
        state = "sent" if outcome is None and sent.is_running else "stored" if outcome is None else "taken"
        print_json(
            {
                "command": sent.command.number,
                "state": "error" if errors else state,
                "batch": None if outcome is None else outcome.batch,
                "time": place,
                "is_complete": outcome is not None and outcome.is_complete,
                "count": 0 if outcome is None else outcome.count,
                "errors": errors,
            }
        )
    else:
        for line in errors or [_sentence(sent, place)]:
            print_line(line)
    if errors:
        raise typer.Exit(1)


def _sentence(sent: Sent, place: str | None) -> str:
    outcome = sent.outcome
    if outcome is None and sent.is_running:
        return f"sent as command {sent.command.number}; it waits for the next micro-batch of the job"
    if outcome is None:
        return f"the job does not run: stored as command {sent.command.number} for its next start"
    done = [item.text for item in outcome.answers.values() if item.part == JOB and item.text]
    where = "before all records" if place is None else f"at arrival time {place}"
    waits = "" if outcome.is_complete else "; it takes effect when all sources have been read beyond there"
    if done:
        return f"{done[0]}, {where}"
    return f"taken in micro-batch {outcome.batch}, {where}{waits}"


# `ensue deploy`, `replace`, `undeploy`, `set` and `remove`: change the queries of a job.

QueryFile = Annotated[Path, typer.Argument(metavar="QUERY", help="A file of one or more queries.")]
QueryName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the query.")]
InstanceName = Annotated[str, typer.Argument(metavar="INSTANCE", help="Its name; '' = the one without a name.")]


def deploy(
    file: DeploymentFile,
    query: Annotated[Path | None, typer.Argument(metavar="QUERY", help="A file of one or more queries.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="First read the job's sources again, from this arrival time; or `start`."
        ),
    ] = None,
    history: Annotated[
        bool,
        typer.Option("--history", help="First read the table that `history` of the deployment file names."),
    ] = False,
    accept_gap: Annotated[
        bool,
        typer.Option("--accept-gap", help="With --from or --history: also if some of the records are no longer there."),
    ] = False,
    at: AtTime = None,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Let a job run the queries of a file, too."""
    if query is None:
        raise InputError(f"name the file of the queries to deploy; `ensue run {file}` starts the job itself")
    if since is not None or history:
        how = {"uses_table": history, "accepts_gap": accept_gap, "wait": not no_wait}
        _send_with_history(file, text_of(query), since or "start", at, how, as_json=as_json)
        return
    if accept_gap:
        raise InputError("--accept-gap needs --from or --history")
    _send(file, "DeployQuery", [text_of(query)], at, no_wait=no_wait, as_json=as_json)


def replace(
    file: DeploymentFile,
    query: QueryFile,
    now: Annotated[bool, typer.Option("--now", help="The new text begins at once, with empty windows.")] = False,
    at: AtTime = None,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Let a job run the queries of a file in place of those with the same names."""
    arguments = [text_of(query), *(["now"] if now else [])]
    _send(file, "ReplaceQuery", arguments, at, no_wait=no_wait, as_json=as_json)


def undeploy(
    file: DeploymentFile, name: QueryName, at: AtTime = None, no_wait: NoWait = False, as_json: Json = False
) -> None:
    """End a query of a job."""
    _send(file, "UndeployQuery", [name], at, no_wait=no_wait, as_json=as_json)


def set_(
    file: DeploymentFile,
    name: QueryName,
    instance: InstanceName,
    values: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="Values of parameters.")],
    at: AtTime = None,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Create an instance of a query of a job, or change its values."""
    _send(file, "SetParameters", [name, instance, dict(map(_value, values))], at, no_wait=no_wait, as_json=as_json)


def remove(
    file: DeploymentFile,
    name: QueryName,
    instance: InstanceName,
    at: AtTime = None,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """End an instance of a query of a job."""
    _send(file, "RemoveInstance", [name, instance], at, no_wait=no_wait, as_json=as_json)


def text_of(path: Path) -> str:
    """The text of a file of queries; raises InputError."""
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise refused(error, f"{path}: cannot be read") from error


def _value(written: str) -> tuple[str, Any]:
    """A value as JSON, or else as text."""
    name, sign, text = written.partition("=")
    if not sign or not name:
        raise InputError(f"{written!r}: expected NAME=VALUE")
    try:
        return name, json_of_text(text, object)
    except DamagedJson:
        return name, text


def _send(file: Path, name: str, arguments: list[Any], at: str | None, *, no_wait: bool, as_json: bool) -> None:
    from job_engine.deployment_file import load_deployment
    from job_engine.job.commands import send_change

    sent = send_change(load_deployment(file), json.dumps({name: arguments}), at=at, wait=not no_wait)
    print_sent(sent, as_json=as_json)


def _send_with_history(
    file: Path, text: str, since: str, at: str | None, how: dict[str, bool], *, as_json: bool
) -> None:
    from job_engine.deployment_file import load_deployment
    from job_engine.job.history.running import send_with_history

    sent = send_with_history(load_deployment(file), text, since, at=at, **how)
    print_sent(sent, as_json=as_json)


# `ensue shadow` and `ensue diff`: try a changed query beside the one that runs.

MOST_SHOWN = 20
"""Matches of each query that are printed; with `--json`, all are."""


def shadow(
    file: DeploymentFile, query: QueryFile, at: AtTime = None, no_wait: NoWait = False, as_json: Json = False
) -> None:
    """Let a changed query run beside the one of its name, to compare what they find."""
    from job_engine.deployment_file import load_deployment
    from job_engine.job.commands import send_shadow

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

"""`ensue deploy`, `replace`, `undeploy`, `set` and `remove`: change the queries of a job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ensue.commands.jobs.control import AtTime, NoWait, print_sent
from ensue.commands.options import DeploymentFile, Json
from querylang.errors import InputError
from runtime.json_reader import DamagedJson, json_of_text

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
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


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
    from job_engine.job.commands import send_change
    from job_engine.settings.deployment_file import load_deployment

    sent = send_change(load_deployment(file), json.dumps({name: arguments}), at=at, wait=not no_wait)
    print_sent(sent, as_json=as_json)


def _send_with_history(
    file: Path, text: str, since: str, at: str | None, how: dict[str, bool], *, as_json: bool
) -> None:
    from job_engine.job.history.running import send_with_history
    from job_engine.settings.deployment_file import load_deployment

    sent = send_with_history(load_deployment(file), text, since, at=at, **how)
    print_sent(sent, as_json=as_json)

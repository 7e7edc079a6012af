"""`ensue forget`: let a job forget a key."""

from __future__ import annotations

from typing import Annotated

import typer

from ensue.commands.jobs.control import NoWait
from ensue.commands.options import DeploymentFile, Json
from ensue.commands.output import print_error, print_json, print_line


def forget(
    file: DeploymentFile,
    key: Annotated[
        list[str],
        typer.Option("--key", metavar="KEY", help="A key: `7`; `card=7` for one part of several; or a JSON object."),
    ],
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Let a job forget a key: its events, pending matches and held records.

    A job that does not run forgets at its next start. Results that were written stay as they are.
    """
    from job_engine.job.upkeep.keys import forget as let_forget
    from querylang.errors import counted, listed

    found = let_forget(file, key, wait=not no_wait)
    outcome = found.sent.outcome
    errors = [] if outcome is None else outcome.errors
    state = "forgotten" if outcome is not None else "sent" if found.sent.is_running else "stored"
    if as_json:
        print_json(
            {
                "command": found.sent.command.number,
                "state": "error" if errors else state,
                "batch": None if outcome is None else outcome.batch,
                "removed": dict(found.removed),
                "others": list(found.others),
                "remains": list(found.remains),
                "errors": errors,
            }
        )
    elif errors:
        for line in errors:
            print_line(line)
    elif outcome is None and not found.sent.is_running:
        print_line(f"the job does not run: stored as command {found.sent.command.number} for its next start")
    elif outcome is None:
        print_line(f"sent as command {found.sent.command.number}")
    else:
        events, waits, held = (found.removed.get(name, 0) for name in ("events", "waits", "held"))
        parts = f"{counted(events, 'event')}, {counted(waits, 'pending match', 'pending matches')}"
        print_line(f"forgotten in micro-batch {outcome.batch}: {parts}, {counted(held, 'held record')}")
    if errors:
        raise typer.Exit(1)
    if not as_json:
        if found.others:
            print_error(
                f"queries without such a key may keep its events under other keys: {listed(list(found.others))}"
            )
        for line in found.remains:
            print_error(f"not touched: {line}")

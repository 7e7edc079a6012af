"""The state of a job in words: what is kept of a key, what waits, until when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ensue.rendering.text_table import text_table
from job_engine.job.upkeep.keys import JobState, KeyState
from querylang.errors import counted, listed
from querylang.printable import json_text


def state_text(state: JobState) -> str:
    """A part for each query, with an empty line between them."""
    return "\n\n".join(_parts(state))


def _parts(state: JobState) -> Iterator[str]:
    if state.keys is None:
        header = ("query", "keys", "events", "pending", "waits")
        rows = [(size.query, *(f"{getattr(size, name):,}" for name in header[1:])) for size in state.sizes]
        yield text_table(header, rows, frozenset(header[1:]))
        return
    for key in state.keys:
        yield "\n".join(_of_key(key))
    if state.others:
        yield f"without such a key: {listed(list(state.others))}"


def _of_key(key: KeyState) -> Iterator[str]:
    title = f"{key.query}/{key.instance}" if key.instance else key.query
    named = ", ".join(f"{name} = {value}" for name, value in key.key.items())
    reached = f"definitive time {key.definitive}" if key.definitive else "no definitive time yet"
    yield f"{title}, {named}: {reached}"
    if not (key.events or key.waits or key.held):
        yield "nothing is kept of this key"
    if key.events:
        yield text_table(("event", "time", "status", "until", "fields"), [_event(event) for event in key.events])
    if key.waits:
        yield f"{counted(len(key.waits), 'match', 'matches')} waiting"
        rows = [(str(wait["due"]), _members(wait["members"])) for wait in key.waits]
        yield text_table(("due", "members"), rows)
    if key.held:
        yield f"{counted(len(key.held), 'record')} held until slower sources catch up"
        held = [(str(event["event"]), str(event["arrival"]), json_text(event["fields"])) for event in key.held]
        yield text_table(("event", "arrival", "fields"), held)


def _event(event: Mapping[str, Any]) -> tuple[str, ...]:
    until = (
        event["until"] or event["reorder_until"] or ("its time is definitive" if event["status"] == "pending" else "")
    )
    return event["event"], str(event["time"]), event["status"], until or "no limit of time", json_text(event["fields"])


def _members(members: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {event['event']} {event['time']}" for name, event in members.items())

"""Runs queries and rows through Ensue, on both matchers, and puts its matches beside the oracle's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import ensue
from ensue.answer import Replay
from runtime.replay.replay import measured_replay
from tests.oracle.events import SECOND, Row
from tests.oracle.query import Match, Query
from tests.oracle.random_queries import Draw
from tests.oracle.random_streams import TYPES

Shown = tuple[Any, ...]
"""Key, time, row numbers per name, points, selected values."""

EVENT_TYPES = f"{TYPES}WXY"
"""Those of random streams, and those of examples."""

EVENTS = "".join(
    f"{{}}event {name} {{{{ integer id; integer k; integer v; float w; string s; }}}}\n" for name in EVENT_TYPES
)
"""Definitions; in the brackets stands an annotation."""


def text_of(queries: Sequence[Query], *, late: bool) -> str:
    """A query file."""
    definitions = EVENTS.format(*["@OutOfOrder() " if late else ""] * len(EVENT_TYPES))
    return definitions + "".join(query.text() for query in queries)


def records_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """An event table."""
    return [
        {
            "at": row.at / SECOND,
            "event": row.type,
            "ts": row.time / SECOND,
            "id": row.number,
            "k": row.k,
            "v": row.v,
            "w": row.w,
            "s": row.s,
        }
        for row in rows
    ]


def found_by_ensue(draw: Draw) -> dict[str, dict[str, list[Shown]]]:
    """By matcher and query what is found, per key in the order in which it comes out."""
    replay = ensue.replay(text_of(draw.queries, late=draw.late), records_of(draw.rows))
    results, figures = measured_replay(replay.plan, replay.records, matcher="reference")
    reference = Replay(replay.plan, replay.records, results, figures, None, flush=True)
    keys = {query.name: query.keys for query in draw.queries}
    return {"ensue.replay": by_query(replay, keys), "reference matcher": by_query(reference, keys)}


def by_query(replay: Replay, keys: Mapping[str, Sequence[str]]) -> dict[str, list[Shown]]:
    found = defaultdict[str, list[Shown]](list)
    for match in replay.match_objects():
        name = match["query"]
        key = tuple(match["key"][field] for field in keys[name])
        members = {bound: rows_of(events) for bound, events in match["members"].items()}
        selected = {bound: selected_of(value) for bound, value in match.get("selected", {}).items()}
        points = {wait: None if at is None else microseconds(at) for wait, at in match.get("points", {}).items()}
        found[name].append((key, microseconds(match["time"]), members, points, selected))
    return {name: sorted(matches, key=lambda match: match[0]) for name, matches in found.items()}


def rows_of(events: Any) -> Any:
    """Row numbers instead of events."""
    match events:
        case None:
            return None
        case list():
            return tuple(event["row"] for event in events)
    return events["row"]


def selected_of(value: Any) -> Any:
    """A value, or the row numbers of a run."""
    return tuple(event["fields"]["id"] for event in value) if isinstance(value, list) else value


def microseconds(at: str) -> int:
    passed = datetime.fromisoformat(at) - datetime.fromisoformat("1970-01-01T00:00:00Z")
    return passed // timedelta(microseconds=1)


def found_by_oracle(query: Query, rows: Sequence[Row]) -> list[Shown]:
    """The same of the oracle."""
    return [shown(match) for match in query.matches(rows)]


def shown(match: Match) -> Shown:
    return match.key, match.time, dict(match.members), dict(match.points), dict(match.selected)


def differences(draw: Draw, oracle: Sequence[Query] = ()) -> list[str]:
    """A text for each query and matcher that disagrees with the oracle.

    oracle: what the oracle runs instead of the queries, to see that a difference is noticed
    """
    found = found_by_ensue(draw)
    texts = list[str]()
    for query, asked in zip(draw.queries, oracle or draw.queries, strict=True):
        wanted = found_by_oracle(asked, draw.rows)
        for matcher, by_name in found.items():
            if by_name.get(query.name, []) != wanted:
                texts.append(difference_text(query, draw, matcher, by_name.get(query.name, []), wanted))
    return texts


def difference_text(query: Query, draw: Draw, matcher: str, found: Sequence[Shown], wanted: Sequence[Shown]) -> str:
    """The query, the rows, and both lists of matches."""
    rows = [f"  {number}: {record}" for number, record in enumerate(records_of(draw.rows), 1)]
    both = [f"{matcher}:", *(f"  {match}" for match in found), "oracle:", *(f"  {match}" for match in wanted)]
    return "\n".join([text_of([query], late=draw.late), *rows, *both])

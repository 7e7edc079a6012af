"""A `find every` that selects events: on random streams, what plain Python enumerates."""

from __future__ import annotations

import random
from typing import Any

import pytest

import ensue
from runtime.timestamps import format_time

SECOND = 1_000_000
QUERY = """
@OutOfOrder
event A {{ string k; integer v; float ts; }}
@OutOfOrder
event B {{ string k; integer v; float ts; }}
event Beat {{ float ts; }}
query Q {{
    inputs {{ A() key k within 6.0 retain 4 {order}; B() key k within 6.0 {order}; }}
    find every A as a -> B as b
        where b.v >= a.v
        select first(a) as earliest
        select count() as pairs
        select last(b) as latest
        select nth(a, 1) as second
        select earliest.v + latest.v as both
        having last(b).getTime() - earliest.getTime() < 5.0
    {{ print earliest.getTime().toString() + " " + latest.v.toString(); }}
}}
"""
Row = dict[str, Any]


def random_rows(chooser: random.Random) -> list[Row]:
    """Events of two types and keys in order of arrival, out of order by less than 2 s; no two at the same time."""
    rows, now = [], 10_000
    for _ in range(60):
        now += chooser.choice((1, 5, 200, 900, 2500))
        ts = now - chooser.randrange(1900)
        while any(row["ts"] == ts / 1000 for row in rows):
            ts += 1
        event, key, value = chooser.choice("AAB"), chooser.choice("xy"), chooser.randrange(5)
        rows.append({"at": now / 1000, "event": event, "k": key, "v": value, "ts": ts / 1000})
    return rows


def expected(rows: list[Row], clock: str) -> list[tuple[str, Row]]:
    """By match: what is printed, and what is selected; `clock`: the column that orders the events."""
    found = []
    numbered = [{**row, "row": number} for number, row in enumerate(rows, start=1)]
    for key in "xy":
        events = sorted((row for row in numbered if row["k"] == key), key=lambda row: (row[clock], row["row"]))
        for place, newest in enumerate(events):
            seen = events[: place + 1]
            window = [row for row in seen if round(newest[clock] * SECOND) - round(row[clock] * SECOND) < 6 * SECOND]
            kept = [row for row in seen if row["event"] == "A"][-4:]
            pairs = [
                (a, b)
                for number, b in enumerate(window)
                for a in window[:number]
                if a in kept and b["event"] == "B" and b["v"] >= a["v"]
            ]
            if any(b is newest for _, b in pairs):
                earliest, latest = pairs[0][0], pairs[-1][1]
                if latest[clock] - earliest[clock] < 5.0:
                    selected = {
                        "earliest": member(earliest, clock),
                        "pairs": len(pairs),
                        "latest": member(latest, clock),
                        "second": member(pairs[1][0], clock) if len(pairs) > 1 else None,
                        "both": earliest["v"] + latest["v"],
                    }
                    found.append((f"{earliest[clock]} {latest['v']}", selected))
    return found


def member(row: Row, clock: str) -> Row:
    own = format_time(round(row["ts"] * SECOND))
    arrival = format_time(round(row["at"] * SECOND))
    return {
        "event": row["event"],
        "time": own if clock == "ts" else arrival,
        "source_time": own,
        "arrival": arrival,
        "row": row["row"],
        "fields": {name: row[name] for name in ("k", "v", "ts")},
    }


@pytest.mark.parametrize(("order", "clock"), [("", "at"), ("time from ts wait 2.0 or Beat", "ts")])
@pytest.mark.parametrize("seed", range(8))
def test_selected_events_are_those_that_plain_python_enumerates(seed: int, order: str, clock: str) -> None:
    rows = random_rows(random.Random(seed))
    result = ensue.replay(QUERY.format(order=order), rows)
    found = zip(result.output_objects(), result.match_objects(), strict=True)
    wanted = expected(rows, clock)
    assert wanted
    assert sorted(repr((output["text"], match["selected"])) for output, match in found) == sorted(map(repr, wanted))

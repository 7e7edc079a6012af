"""What `new by` stores of values, against loops over all events that are written from the rules alone.

Which records are late is left to the engine, which lists them: other tests are about that. All else is done here for each
key in its total order, event by event.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ensue

Row = dict[str, Any]
FIELDS = "{ integer id; integer k; string s; float f; integer v; float ts; }"
WAIT = 2.25
"""Seconds; no two events of a stream are exactly that far apart."""
SHAPES = {
    "every": "A as a select a.id as one",
    "then": "A as a -> B as b select a.id as one select b.id as two",
    "wait": f"A as a -> wait({WAIT}) without B as x select a.id as one",
    "without": "B as b -> B as c without A as x select b.id as one select c.id as two",
}


@dataclass(frozen=True)
class Setting:
    """A query; lengths in seconds.

    values: of `new by`
    wait: None = events happen when they arrive
    retain: of A; None = no limit
    """

    shape: str
    has_key: bool
    values: tuple[str, ...]
    length: int
    within: int
    retain: int | None
    wait: int | None
    late: bool

    def text(self) -> str:
        head = "@OutOfOrder\n" if self.late else ""
        key = "key k " if self.has_key else ""
        wait = "" if self.wait is None else f" wait {self.wait}"
        retain = "" if self.retain is None else f" retain {self.retain}"
        new = f" new by {', '.join(self.values)} within {self.length}"
        inputs = f"A() {key}within {self.within}{retain}{new}{wait}; B() {key}within {self.within}{wait};"
        types = "".join(f"{head}event {name} {FIELDS}\n" for name in "AB")
        return f"{types}query Q {{ inputs {{ {inputs} }} find {SHAPES[self.shape]} }}"


def setting(chooser: random.Random) -> Setting:
    values = chooser.sample(["s", "f", "v"], chooser.choice([1, 1, 2, 3]))
    return Setting(
        shape=chooser.choice(list(SHAPES)),
        has_key=chooser.random() < 0.8,
        values=tuple(values),
        length=chooser.choice([1, 2, 5, 20]),
        within=chooser.choice([3, 10, 100]),
        retain=chooser.choice([None, None, 1, 2]),
        wait=chooser.choice([None, 2, 6]),
        late=chooser.random() < 0.5,
    )


def rows_of(chooser: random.Random, count: int) -> list[Row]:
    """Records in order of arrival: ties, nulls, NaN, both zeros, and some that are late."""
    rows, at = [], 0.0
    for number in range(count):
        at += chooser.choice([0, 0, 0.5, 1, 1, 3])
        rows.append(
            {
                "event": chooser.choice("AAB"),
                "id": number,
                "k": chooser.randrange(3),
                "s": chooser.choice(["", "x", "y", None]),
                "f": chooser.choice([0.0, -0.0, math.nan, 1.5, None]),
                "v": chooser.choice([0, 1, None]),
                "ts": at - chooser.choice([0, 0, 0, 1, 2, 7]),
                "at": at,
            }
        )
    return rows


def value(cell: Any) -> Any:
    """Equal for what the rules call equal: a null equals a null, NaN equals NaN."""
    return "NaN" if isinstance(cell, float) and math.isnan(cell) else cell


Order = Callable[[Row], tuple[float, float, int]]


def in_order(rows: Sequence[Row], late: set[int], has_wait: bool) -> list[tuple[float, Row]]:
    """The events that count, each with its time, in total order."""
    timed = [(row["ts"] if has_wait else row["at"], row) for row in rows if row["id"] not in late]
    return sorted(timed, key=lambda event: (event[0], event[1]["at"], event[1]["id"]))


def expected(own: Setting, rows: Sequence[Row], late: set[int]) -> tuple[list[tuple[int, ...]], int]:
    """The ids that the matches select, and how many events are not new."""
    found: list[tuple[int, ...]] = []
    repeated = 0
    keys = {row["k"] if own.has_key else 0 for row in rows}
    for key in sorted(keys):
        events = in_order([row for row in rows if not own.has_key or row["k"] == key], late, own.wait is not None)
        counted: list[tuple[float, Row]] = []
        for place, (time, row) in enumerate(events):
            same = [
                before
                for before, other in events[:place]
                if other["event"] == "A" and all(value(other[name]) == value(row[name]) for name in own.values)
            ]
            if row["event"] == "A" and any(time - before < own.length for before in same):
                repeated += 1
                continue
            counted.append((time, row))
            found += of_latest(own, counted)
        if own.shape == "wait":
            found += of_waits(counted)
    return found, repeated


def of_waits(counted: Sequence[tuple[float, Row]]) -> list[tuple[int, ...]]:
    """The A of a key that no B follows before the wait ends."""
    return [
        (row["id"],)
        for place, (time, row) in enumerate(counted)
        if row["event"] == "A"
        and not any(other["event"] == "B" and after <= time + WAIT for after, other in counted[place + 1 :])
    ]


def of_latest(own: Setting, counted: Sequence[tuple[float, Row]]) -> list[tuple[int, ...]]:
    """What the latest of the counted events of a key brings."""
    now, latest = counted[-1]
    of_a = [(time, row) for time, row in counted if row["event"] == "A"]
    retained = of_a if own.retain is None else of_a[-own.retain :]
    window = [row for time, row in retained if now - time < own.within]
    if own.shape == "every":
        return [(latest["id"],)] if latest["event"] == "A" else []
    if latest["event"] == "A" or own.shape == "wait":
        return []
    if own.shape == "then":
        return [(window[-1]["id"], latest["id"])] if window else []
    before = [place for place, (_, row) in enumerate(counted[:-1]) if row["event"] == "B"]
    young = [place for place in before if now - counted[place][0] < own.within]
    for place in reversed(young):  # the most recent without an A between
        between = [row for _, row in counted[place + 1 : -1] if row["event"] == "A" and row in window]
        if not between:
            return [(counted[place][1]["id"], latest["id"])]
    return []


def given(answers: Sequence[Any]) -> list[tuple[int, ...]]:
    matches = [match["selected"] for answer in answers for match in answer.match_objects()]
    return [tuple(match[name] for name in ("one", "two") if name in match) for match in matches]


def counts(ledger: Any) -> Counter[str]:
    return Counter(
        {row.what: int(row.count) for row in ledger.groupby("what", as_index=False)["count"].sum().itertuples()}
    )


@pytest.mark.parametrize("number", range(120))
def test_the_first_event_of_its_values_counts(number: int) -> None:
    chooser = random.Random(number)
    own, rows = setting(chooser), rows_of(chooser, chooser.choice([5, 20, 40]))
    answer = ensue.replay(own.text(), rows, source_time="ts")
    late = {int(offset) for offset in answer.discarded["id"]}
    matches, repeated = expected(own, rows, late)
    assert sorted(given([answer])) == sorted(matches), own.text()
    found = counts(answer.ledger)
    assert found["not_new"] == repeated
    assert found["received"] == len(rows) == sum(found.values()) - found["received"]


@pytest.mark.parametrize("number", range(1000, 1030))
def test_open_queries_remember_across_files(number: int, tmp_path: Path) -> None:
    chooser = random.Random(number)
    own, rows = setting(chooser), rows_of(chooser, 30)
    whole = ensue.replay(own.text(), rows, source_time="ts")
    queries, answers, begin = ensue.open(own.text(), source_time="ts"), [], 0
    while begin < len(rows):
        end = begin + chooser.choice([1, 1, 2, 7])
        answers.append(queries.send(rows[begin:end]))
        begin = end
        if chooser.random() < 0.3:
            queries.save(tmp_path / "state")
            queries = ensue.open(own.text(), source_time="ts", state=tmp_path / "state")
    answers.append(queries.flush())
    assert sorted(given(answers)) == sorted(given([whole]))

"""What `new by` and `at most` store of values, against loops over all events that are written from the rules alone.

Which records are late is left to the engine, which lists them: other tests are about that. All else is done here for each
key in its total order, event by event.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import ensue
import querylang
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.reading.tables import read_arrivals

Row = dict[str, Any]
FIELDS = "{ integer id; integer k; string s; float f; integer v; float ts; }"
WAIT = 2.25
"""Seconds; no two events of a stream are exactly that far apart."""
PLAIN = "event A { integer id; integer k; integer v; }"
SHAPES = {
    "each": "A as a select a.id as one",
    "then": "A as a -> B as b select a.id as one select b.id as two",
    "next": "A as a => B as b select a.id as one select b.id as two",
    "all": "all A as a -> B as b select a.id as one select b.id as two",
    "every": "every A as a select last(a.id) as one select count() as two",
    "wait": f"A as a -> wait({WAIT}) without B as x select a.id as one",
    "without": "B as a -> B as c without A as x select a.id as one select c.id as two",
}

Compares = Callable[[Row, tuple[int, ...]], Any]
"""A value of a match: of its event `a`, and of what it selects; a `find every` has the last value of each field."""

COMPARED: dict[str, Compares] = {
    "a.s": lambda row, _: value(row["s"]),
    "a.f": lambda row, _: value(row["f"]),
    "a.v + 1": lambda row, _: row["v"],  # a null under `+` is null
    "one % 2": lambda _, selected: selected[0] % 2,
    "one / 3": lambda _, selected: selected[0] // 3,
}


@dataclass(frozen=True)
class Limit:
    """`at most`; `length`: seconds."""

    count: int
    length: int
    values: tuple[str, ...]

    def text(self, *, is_every: bool) -> str:
        values = [f"last({item})" if is_every and item.startswith("a.") else item for item in self.values]
        return f" at most {self.count} per {self.length}" + (f" by {', '.join(values)}" if values else "")


@dataclass(frozen=True)
class Match:
    """A match; `row`: as of `Compares`; `suppressed` None: it is not known yet."""

    time: float
    row: Row
    selected: tuple[int, ...]
    suppressed: int | None = None


@dataclass(frozen=True)
class Setting:
    """A query; lengths in seconds.

    values: of `new by`; none = it has none
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
    limit: Limit | None = None

    def text(self) -> str:
        head = "@OutOfOrder\n" if self.late else ""
        key = "key k " if self.has_key else ""
        wait = "" if self.wait is None else f" wait {self.wait}"
        retain = "" if self.retain is None else f" retain {self.retain}"
        new = f" new by {', '.join(self.values)} within {self.length}" if self.values else ""
        limit = "" if self.limit is None else self.limit.text(is_every=self.shape == "every")
        inputs = f"A() {key}within {self.within}{retain}{new}{wait}; B() {key}within {self.within}{wait};"
        types = "".join(f"{head}event {name} {FIELDS}\n" for name in "AB")
        return f"{types}query Q {{ inputs {{ {inputs} }} find {SHAPES[self.shape]}{limit} }}"


def setting(chooser: random.Random, *, has_limit: bool) -> Setting:
    values = chooser.sample(["s", "f", "v"], chooser.choice([0, 1] if has_limit else [1, 1, 2, 3]))
    limit = Limit(
        count=chooser.choice([1, 1, 2, 3]),
        length=chooser.choice([1, 2, 5, 20]),
        values=tuple(chooser.sample(list(COMPARED), chooser.choice([0, 1, 1, 2]))),
    )
    return Setting(
        shape=chooser.choice(list(SHAPES)),
        has_key=chooser.random() < 0.8,
        values=tuple(values),
        length=chooser.choice([1, 2, 5, 20]),
        within=chooser.choice([3, 10, 100]),
        retain=chooser.choice([None, None, 1, 2]),
        wait=chooser.choice([None, 2, 6]),
        late=chooser.random() < 0.5,
        limit=limit if has_limit else None,
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


def in_order(rows: Sequence[Row], late: set[int], has_wait: bool) -> list[tuple[float, Row]]:
    """The events that count, each with its time, in total order."""
    timed = [(row["ts"] if has_wait else row["at"], row) for row in rows if row["id"] not in late]
    return sorted(timed, key=lambda event: (event[0], event[1]["at"], event[1]["id"]))


def expected(own: Setting, rows: Sequence[Row], late: set[int]) -> tuple[list[Match], int, int]:
    """The matches that are given, how many are suppressed, and how many events are not new."""
    found: list[Match] = []
    suppressed = repeated = 0
    keys = {row["k"] if own.has_key else 0 for row in rows}
    for key in sorted(keys):
        events = in_order([row for row in rows if not own.has_key or row["k"] == key], late, own.wait is not None)
        counted = [event for place, event in enumerate(events) if is_new(own, events, place)]
        repeated += len(events) - len(counted)
        of_key = [match for count in range(1, len(counted) + 1) for match in of_latest(own, counted[:count])]
        of_key += of_waits(counted) if own.shape == "wait" else []
        left = of_key if own.limit is None else given_of(own.limit, of_key)
        suppressed += len(of_key) - len(left)
        found += left
    return found, suppressed, repeated


def is_new(own: Setting, events: Sequence[tuple[float, Row]], place: int) -> bool:
    """Whether an event counts: an A of which no equal one came shortly before."""
    time, row = events[place]
    same = [
        before
        for before, other in events[:place]
        if other["event"] == "A" and all(value(other[name]) == value(row[name]) for name in own.values)
    ]
    return row["event"] == "B" or not own.values or all(time - before >= own.length for before in same)


def given_of(limit: Limit, matches: Sequence[Match]) -> list[Match]:
    """The matches of a key that are given; `matches` in their order."""
    left: list[Match] = []
    since: Counter[Any] = Counter()
    for match in matches:
        values = tuple(COMPARED[name](match.row, match.selected) for name in limit.values)
        same = [
            other.time
            for other in left
            if tuple(COMPARED[name](other.row, other.selected) for name in limit.values) == values
        ]
        if sum(match.time - time < limit.length for time in same) < limit.count:
            is_near = bool(same) and match.time - same[-1] < limit.length
            left.append(replace(match, suppressed=since[values] if is_near else 0))
            since[values] = 0
        else:
            since[values] += 1
    return left


def of_waits(counted: Sequence[tuple[float, Row]]) -> list[Match]:
    """The A of a key that no B follows before the wait ends."""
    return [
        Match(time + WAIT, row, (row["id"],))
        for place, (time, row) in enumerate(counted)
        if row["event"] == "A"
        and not any(other["event"] == "B" and after <= time + WAIT for after, other in counted[place + 1 :])
    ]


def of_latest(own: Setting, counted: Sequence[tuple[float, Row]]) -> list[Match]:
    """What the latest of the counted events of a key brings."""
    now, latest = counted[-1]
    of_a = [(time, row) for time, row in counted if row["event"] == "A"]
    retained = of_a if own.retain is None else of_a[-own.retain :]
    window = [row for time, row in retained if now - time < own.within]
    is_a = latest["event"] == "A"
    match own.shape:
        case "each":
            return [Match(now, latest, (latest["id"],))] if is_a else []
        case "every":
            lasts = {name: cell for row in window for name, cell in row.items() if cell is not None}
            return [Match(now, defaultdict(type(None), lasts), (latest["id"], len(window)))] if is_a else []
        case "wait":
            return []
    if is_a:
        return []
    if own.shape == "next":
        window = [row for row in window if len(counted) > 1 and row is counted[-2][1]]
    if own.shape in ("then", "next", "all"):
        chosen = window if own.shape == "all" else window[-1:]
        return [Match(now, row, (row["id"], latest["id"])) for row in chosen]
    before = [place for place, (_, row) in enumerate(counted[:-1]) if row["event"] == "B"]
    young = [place for place in before if now - counted[place][0] < own.within]
    for place in reversed(young):  # the most recent without an A between
        between = [row for _, row in counted[place + 1 : -1] if row["event"] == "A" and row in window]
        if not between:
            return [Match(now, counted[place][1], (counted[place][1]["id"], latest["id"]))]
    return []


ORDERINGS = (
    "stream_analytics late=5s out_of_order=2s",
    "stream_analytics late=5s over=k",
    "stream_analytics late=-1 over=k out_of_order=1s",
    "streaminsight every=1 delay=2s",
)
"""Policies whose clocks keys share, or have of their own."""

Given = tuple[tuple[int, ...], int | None]
"""What a match selects, and how many were suppressed before it."""


def given(answers: Sequence[Any]) -> list[Given]:
    matches = [match for answer in answers for match in answer.match_objects()]
    return [
        (
            tuple(match["selected"][name] for name in ("one", "two") if name in match["selected"]),
            match.get("suppressed"),
        )
        for match in matches
    ]


def counts(ledger: Any) -> Counter[str]:
    return Counter(
        {row.what: int(row.count) for row in ledger.groupby("what", as_index=False)["count"].sum().itertuples()}
    )


@pytest.mark.parametrize("has_limit", [False, True], ids=["new", "at most"])
@pytest.mark.parametrize("number", range(80))
def test_a_replay_gives_what_the_rules_say(number: int, has_limit: bool) -> None:
    chooser = random.Random(number)
    own, rows = setting(chooser, has_limit=has_limit), rows_of(chooser, chooser.choice([5, 20, 40]))
    answer = ensue.replay(own.text(), rows, source_time="ts")
    late = {int(offset) for offset in answer.discarded["id"]}
    matches, suppressed, repeated = expected(own, rows, late)
    assert sorted(given([answer])) == sorted((match.selected, match.suppressed) for match in matches), own.text()
    found = counts(answer.ledger)
    assert (found["not_new"], found["suppressed"]) == (repeated, suppressed)
    if has_limit:
        assert found["found"] == found["given"] + suppressed == len(matches) + suppressed
    beside = sum(found[word] for word in ("found", "given", "suppressed"))
    assert found["received"] == len(rows) == sum(found.values()) - found["received"] - beside


@pytest.mark.parametrize("has_limit", [False, True], ids=["new", "at most"])
@pytest.mark.parametrize("number", range(1000, 1015))
def test_open_queries_store_values_in_files(number: int, has_limit: bool, tmp_path: Path) -> None:
    chooser = random.Random(number)
    own, rows = setting(chooser, has_limit=has_limit), rows_of(chooser, 30)
    ordering = chooser.choice([None, *ORDERINGS])
    if ordering is not None:
        own = replace(own, wait=None, late=False)
    whole = ensue.replay(own.text(), rows, source_time="ts", ordering=ordering)
    queries, answers, begin = ensue.open(own.text(), source_time="ts", ordering=ordering), [], 0
    while begin < len(rows):
        end = begin + chooser.choice([1, 1, 2, 7])
        answers.append(queries.send(rows[begin:end]))
        begin = end
        if chooser.random() < 0.3:
            queries.save(tmp_path / "state")
            queries = ensue.open(own.text(), source_time="ts", ordering=ordering, state=tmp_path / "state")
    answers.append(queries.flush())
    assert sorted(given(answers)) == sorted(given([whole]))


def test_a_value_that_cannot_be_computed_makes_an_error() -> None:
    types = f"{PLAIN}\n"
    rows = [{"at": number, "id": number, "k": 0, "v": v} for number, v in enumerate([0, 1, 0, 1, None, None])]
    each = "query Q { inputs { A() within 100; } find A as a select a.id as one at most 1 per 100 by 6 / a.v }"
    every = "query Q { inputs { A() retain 1; } find every A as a select last(a.id) as one at most 1 per 100 by 6 / sum(a.v) }"
    for query in (each, every):
        answer = ensue.replay(types + query, rows)
        assert [selected[0] for selected, _ in given([answer])] == [1, 4], query
        errors = [output["text"] for output in answer.output_objects() if output["kind"] == "error"]
        assert set(errors) == {"at most: integer division by zero"}
        found = counts(answer.ledger)
        assert found["found"] + len(errors) == len(rows)


def test_a_match_whose_block_fails_counts_as_given() -> None:
    text = f"{PLAIN}\nquery Q {{ inputs {{ A() within 9; }} find A as a at most 1 per 10 {{ integer x := 1 / a.v; }} }}"
    answer = ensue.replay(text, [{"at": at, "id": at, "k": 0, "v": at} for at in (0, 5, 10)])
    assert [match["time"][-10:-8] for match in answer.match_objects()] == ["00", "10"]
    assert [output["kind"] for output in answer.output_objects()] == ["error"]


def test_instances_store_values_of_their_own_and_keep_them_if_a_parameter_changes() -> None:
    text = f"""{PLAIN}
    query Q {{
        parameters {{ integer n; float length := 10.0; }}
        inputs {{ A() within 9 new by v within length; }}
        find A as a at most n per 100 by a.k
    }}"""
    rows = [{"at": at, "id": at, "k": 0, "v": at // 2} for at in range(12)]
    answer = ensue.replay(text, rows, parameters={"Q": {"few": {"n": 2}, "many": {"n": 5, "length": 1.0}}})
    by_instance = Counter(match["instance"] for match in answer.match_objects())
    assert by_instance == {"few": 2, "many": 5}
    assert counts(answer.ledger[answer.ledger["query"] == "Q/few"])["not_new"] == 6
    assert counts(answer.ledger[answer.ledger["query"] == "Q/many"])["not_new"] == 0


def test_expired_values_are_not_in_saved_states() -> None:
    plan = querylang.compile_text(
        f"{PLAIN}\nquery Q {{ inputs {{ A() key k within 9 new by v within 10; }} find A as a at most 1 per 10 }}"
    ).plan
    engine = Engine(plan)
    engine.process(read_arrivals([{"at": at, "id": at, "k": 0, "v": at} for at in range(30)], plan))
    assert engine.sizes()["Q"]["values"] == 10 + 1
    engine.process(Arrivals.empty(plan), now=60_000_000)
    assert Engine.restore(plan, engine.snapshot()).sizes()["Q"]["values"] == 0

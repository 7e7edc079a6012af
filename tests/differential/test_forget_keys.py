"""Keys that are forgotten: a record behind a gap meets a key as if it were new, for every cut of the stream.

The reference is the meaning itself. A key that was forgotten and comes again is a new key: so each life of a key gets a name of its own,
and an engine that forgets nothing runs over the renamed stream.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

import querylang
from querylang.plan.expression import Type
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals, column_name
from runtime.engine.engine import Engine
from runtime.policies.plan_policies import SourceOrdering, parse_ordering, with_ordering
from runtime.replay.replay import read_records
from runtime.results.schemas import Results

SECOND = 1_000_000
Row = dict[str, Any]
Found = Counter[tuple[Any, ...]]

EVENTS = """
OUT_A event A { string k; integer v; }
OUT_B event B { string k; integer v; }
event H { }
"""
FINDS = (
    "find A as a -> B as b {}",
    "find A as a -> B as b where a.v < b.v {}",
    "find A as a -> A as b within 6 seconds {}",
    "find A as a and B as b {}",
    "find every A as a where a.v > 0 select sum(a.v) as s {}",
    "find A as a -> wait(2 seconds) {}",
    "find A as a -> wait(4 seconds) without B as b {}",
)
WINDOWS = ("retain 2", "retain 3", "within 5 seconds", "within 8 seconds retain 2", "retain 2 with unique v")


@dataclass(frozen=True)
class Drawn:
    """A query that forgets keys, and its stream.

    `wait`: the trailing wait, `longest`: the longest wait of an input, both in seconds; `ordering`: a policy for all sources.
    """

    text: str
    length: int
    rows: list[Row]
    wait: int = 0
    longest: int = 0
    ordering: str | None = None

    def plan(self, *, forgets: bool) -> Plan:
        plan = querylang.compile_text(self.text).plan
        if self.ordering is not None:
            plan = with_ordering(plan, [SourceOrdering(None, parse_ordering(self.ordering), None)])
        length = self.length * SECOND if forgets else None
        return replace(plan, queries=tuple(replace(query, forget_keys=length) for query in plan.queries))


def drawn(seed: int, style: str) -> Drawn:
    chooser = random.Random(seed)
    find = chooser.choice(FINDS)
    waits = {event: chooser.choice((None, 1, 3)) if style == "waits" else None for event in "AB"}
    out = {f"OUT_{event}": "@OutOfOrder" if waits[event] and chooser.randrange(3) == 0 else "" for event in "AB"}
    inputs = " ".join(
        f"{event}() key k {chooser.choice(WINDOWS)}" + (f" wait {waits[event]} seconds" if waits[event] else "") + ";"
        for event in "AB"
    )
    text = f"{EVENTS} query Q {{ inputs {{ {inputs} }} {find} }}"
    for name, annotation in out.items():
        text = text.replace(name, annotation)
    policies = {
        "analytics": (
            "stream_analytics late=2s out_of_order=1s",
            "stream_analytics late=-1 out_of_order=1s early=none",
        ),
        "insight": ("streaminsight every=1 delay=1s", "streaminsight every=2 idle=3s", "streaminsight final=yes"),
    }
    trailing = int(find.partition("wait(")[2][:1] or 0)
    return Drawn(
        text,
        chooser.choice((1, 3, 5, 8, 12)),
        rows_of(chooser, chooser.choice((10, 30, 60)), style),
        trailing,
        max(waits["A"] or 0, waits["B"] or 0),
        chooser.choice(policies[style]) if style in policies else None,
    )


def rows_of(chooser: random.Random, count: int, style: str) -> list[Row]:
    at, rows = 100, list[Row]()
    for _ in range(count):
        at += chooser.choice((0, 0, 1, 1, 2, 6, 9))
        ahead = chooser.choice((0, 0, 0, 0, -1, -2, 1, 4))
        row = {"at": float(at), "event": chooser.choice("AAB"), "k": chooser.choice("xyz"), "v": chooser.randrange(3)}
        if style != "arrival":
            row["ts"] = float(at + ahead)
        if chooser.randrange(12) == 0:
            row = {"at": float(at), "event": None}
        elif style == "waits" and chooser.randrange(12) == 0:
            row = {"at": float(at), "event": f'Heartbeat("{chooser.choice("AB")}", {at - chooser.randrange(4)}.0)'}
        rows.append(row)
    return rows


def renamed(query: Drawn, plan: Plan, whole: pa.Table) -> tuple[pa.Table, int]:
    """The stream with a name for each life of a key, and how many lives were followed by another one."""
    engine = Engine(plan)
    life, last, latest = Counter[str](), dict[str, int](), dict[str, int]()
    names, ended = list[str | None](), 0
    for number, row in enumerate(query.rows):
        now, key = round(row["at"] * SECOND), row.get("k")
        engine.process(Arrivals.empty(plan), now=now)
        if key is not None:
            is_due = key in last and now - last[key] >= query.length * SECOND
            if is_due and not held(engine, query, f"{key}{life[key]}", latest.get(key), now):
                life[key] += 1
                ended += 1
                latest.pop(key, None)
        names.append(None if key is None else f"{key}{life[key]}")
        result = engine.process(Arrivals(with_names(whole.slice(number, 1), names[-1:])))
        if key is not None:
            last[key] = now
            if not len(result.discarded) or (
                query.ordering is None and result.discarded["reason"][0].as_py() != "early"
            ):
                adjusted = result.adjusted["time"].to_pylist()
                time = adjusted[0] if adjusted else round(row["ts"] * SECOND) if has_time(query, row) else now
                latest[key] = max(latest.get(key, time), time)
    return with_names(whole, names), ended


def with_names(table: pa.Table, names: list[str | None]) -> pa.Table:
    place = table.schema.get_field_index(column_name("k", Type.STRING))
    return table.set_column(place, table.schema.field(place), pa.array(names, pa.string()))


def has_time(query: Drawn, row: Row) -> bool:
    """Whether an event happens at its source time."""
    inputs = query.text.partition("inputs {")[2]
    own = inputs.partition(f"{row['event']}() key")[2].partition(";")[0]
    return query.ordering is not None or " wait " in own


def held(engine: Engine, query: Drawn, key: str, latest: int | None, now: int) -> bool:
    """Whether an event or a wait of the key may be pending: its own clock is trusted no further than its waits say."""
    if latest is None:
        return False
    due = latest + query.wait * SECOND
    if query.ordering is None:
        return now < due + query.longest * SECOND
    reached = engine.definitive("Q", (key,))
    is_strict = query.ordering.startswith("streaminsight")
    return reached is None or (reached <= due if is_strict else reached < due)


def found_by(plan: Plan, whole: pa.Table, cuts: Sequence[int], *, restores: bool = False) -> tuple[Found, int]:
    """The matches and discards, and how many keys were forgotten, of a stream that is cut there."""
    engine, found = Engine(plan), Counter[tuple[Any, ...]]()
    forgotten = 0
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        results = [engine.process(Arrivals(whole.slice(begin, end - begin)))]
        results += [engine.flush()] if end == len(whole) else []
        for result in results:
            found.update(entries(result))
            forgotten += sum(row["count"] for row in result.ledger.to_pylist() if row["what"] == "forgotten_keys")
        if restores:
            engine = Engine.restore(plan, engine.snapshot())
    return found, forgotten


def entries(result: Results) -> list[tuple[Any, ...]]:
    matches = [
        (
            row["time"], row["emitted"], row["definitive"], row["waited"], str(row.get("selected")),
            *((name, None if member is None else member["offset"]) for name, member in row["members"].items()),
        )
        for table in result.matches.values()
        for row in table.to_pylist()
    ]  # fmt: skip
    return matches + [(row["offset"], row["reason"]) for row in result.discarded.to_pylist()]


@pytest.mark.parametrize("style", ["arrival", "waits", "analytics", "insight"])
def test_a_key_behind_a_gap_is_a_new_key(style: str) -> None:
    lives, counted, differ = 0, 0, 0
    for seed in range(12):
        query = drawn(seed, style)
        plan, other = query.plan(forgets=True), query.plan(forgets=False)
        whole = read_records([query.rows], plan).arrivals.table
        rows, ended = renamed(query, other, whole)
        expected, _ = found_by(other, rows, [])
        once = found_by(plan, whole, [])
        assert once[0] == expected, report(query, seed)
        chooser = random.Random(seed)
        cuts = sorted(chooser.sample(range(1, len(whole)), min(len(whole) - 1, chooser.choice((2, 5, 30)))))
        assert found_by(plan, whole, cuts, restores=bool(seed % 2)) == once, report(query, seed)
        lives, counted = lives + ended, counted + once[1]
        differ += found_by(other, whole, [])[0] != expected
    assert (lives > 20, counted > 10, differ > 2) == (True, True, True)


def report(query: Drawn, seed: int) -> str:
    return "\n".join(
        [f"seed {seed}, forget after {query.length} s, {query.ordering}", query.text, *map(str, query.rows)]
    )

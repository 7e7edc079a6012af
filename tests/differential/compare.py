"""Runs one scenario through the engine in several ways and through the oracles, and says where they differ.

`check(scenario)` raises an AssertionError whose text is the query, the table and Python that makes the scenario again.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import querylang
from querylang.plan import Plan
from runtime.batch import Arrivals
from runtime.engine import Engine
from runtime.replay import in_order
from runtime.results import Results
from tests.support import admission_oracle, duckdb_oracle, pattern_oracle
from tests.support.admission_oracle import AdmissionOracle
from tests.support.pattern_oracle import Found
from tests.support.scenario import SECOND, Row, Scenario

DISCARDS = ("late", "out_of_order", "null_key", "null_time", "malformed", "unknown_type")


@dataclass
class Observed:
    """What one way of running gave, in the order in which it came out."""

    matches: list[Found] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    discards: list[tuple[int, str, int | None]] = field(default_factory=list)
    outputs: list[tuple[Any, ...]] = field(default_factory=list)
    ledger: Counter[str] = field(default_factory=Counter)


def plan_of(scenario: Scenario) -> Plan:
    """The plan of the scenario's query text."""
    return querylang.compile_text(scenario.query()).plan


def check(scenario: Scenario, *, seed: int = 0, plan: Plan | None = None) -> AdmissionOracle:
    """Every way of running gives the same, and it is what the oracles say; raises AssertionError.

    `seed` decides how the arrivals are cut; `plan`: another one than the scenario's own.
    """
    try:
        return _check(scenario, plan or plan_of(scenario), random.Random(seed))
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}\n{reproduction(scenario, seed)}") from error


def _check(scenario: Scenario, plan: Plan, chooser: random.Random) -> AdmissionOracle:
    admitted = admission_oracle.run(scenario)
    expected = expectation(scenario, admitted)
    at_once = {matcher: run_at_once(plan, scenario, matcher) for matcher in ("auto", "reference")}
    for matcher, observed in at_once.items():
        same(f"{matcher} and oracle", observed, expected)
    assert at_once["auto"].ids == at_once["reference"].ids, "match ids of the two matchers"
    outputs = at_once["auto"].outputs
    assert outputs == at_once["reference"].outputs, "outputs of the two matchers"
    pieces = run_in_pieces(plan, scenario, chooser)
    same("pieces and oracle", pieces, expected)
    assert pieces.ids == at_once["auto"].ids, "match ids of pieces"
    assert sorted(pieces.outputs, key=repr) == sorted(outputs, key=repr), (
        f"outputs of pieces\n  at once {outputs}\n  pieces  {pieces.outputs}"
    )
    assert pieces.outputs == outputs, f"order of outputs\n  at once {outputs}\n  pieces  {pieces.outputs}"
    if scenario.prints:
        printed, wanted = [row for row in outputs if row[0] == "print"], expected_prints(scenario, at_once["auto"])
        assert printed == wanted, f"printed texts\n  found    {printed}\n  expected {wanted}"
    if duckdb_oracle.can_say(scenario):
        duckdb_oracle.load(scenario)
        found, answer = sorted(match.offsets for match in at_once["auto"].matches), duckdb_oracle.find(scenario)
        assert found == answer, f"DuckDB\n  engine {found}\n  SQL    {answer}"
    return admitted


def expectation(scenario: Scenario, admitted: AdmissionOracle) -> Observed:
    """What the oracles say."""
    matches = pattern_oracle.find(scenario, admitted.released)
    discards = [
        (fate.offset, fate.what, None if fate.bound is None else int(fate.bound))
        for fate in admitted.fates
        if fate.what in DISCARDS
    ]
    ledger = Counter(fate.what for fate in admitted.fates)
    ledger["received"] = len(admitted.fates)
    return Observed(matches, [], discards, [], ledger)


def expected_prints(scenario: Scenario, observed: Observed) -> list[tuple[Any, ...]]:
    """What a query prints that prints all of its events."""
    printed: list[tuple[Any, ...]] = []
    for match, match_id in zip(observed.matches, observed.ids, strict=True):
        events = [event_text(scenario, offset) for offset in match.offsets]
        key = json.dumps(dict(zip(scenario.keys, match.key, strict=True)), ensure_ascii=False)
        printed.append(("print", "|".join(events), key, match.time, match.emitted, match_id))
    return printed


def event_text(scenario: Scenario, offset: int) -> str:
    """`A(1,0,"x",...)` of the event in a row."""
    row = scenario.rows[offset - 1]
    index = scenario.input_of(row.kind)
    assert index is not None
    clocked = row.time is not None and scenario.inputs[index].time != "column"
    ts = row.time / SECOND if clocked and row.time is not None else None
    return f"{row.kind}({','.join(map(value_text, (offset, row.k, row.c, row.v, row.f, row.s, row.g, ts)))})"


def value_text(value: bool | float | str | None) -> str:
    """One field of an event's text."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False)
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
        case _:
            return repr(value)


def same(title: str, observed: Observed, expected: Observed) -> None:
    """Compare in the order in which a difference is easiest to understand."""
    assert observed.discards == expected.discards, (
        f"{title}: discards\n  found    {observed.discards}\n  expected {expected.discards}"
    )
    found, wanted = [match_key(item) for item in observed.matches], [match_key(item) for item in expected.matches]
    shown = f"matches\n  found    {found}\n  expected {wanted}"
    assert sorted(found) == sorted(wanted), f"{title}: {shown}"
    account = counted(observed.ledger)
    assert account == expected.ledger, f"{title}: ledger\n  found    {account}\n  expected {expected.ledger}"
    assert found == wanted, f"{title}: order of {shown}"


def match_key(match: Found) -> tuple[Any, ...]:
    """What must be equal of two matches; the number of a step is each one's own."""
    return (match.offsets, match.key, match.time, match.emitted, match.definitive)


def run_at_once(plan: Plan, scenario: Scenario, matcher: str, name: str = "Q") -> Observed:
    """All rows in one call, then the flush; what the query of that name gave."""
    engine = Engine(plan, matcher=matcher)
    observed = Observed()
    take(plan, observed, engine.process(scenario.arrivals(plan, scenario.ordered())), name)
    balanced(engine)
    take(plan, observed, engine.flush(), name)
    balanced(engine)
    assert totals(engine.ledger(), name) == counted(observed.ledger), "the ledger is the sum of its changes"
    return observed


def run_in_pieces(plan: Plan, scenario: Scenario, chooser: random.Random) -> Observed:
    """The rows in calls of random length, each call's rows shuffled, the state saved and read in between.

    After each call the definitive time of every key is compared with the oracle's.
    """
    engine = Engine(plan, matcher=chooser.choice(("auto", "reference")))
    oracle = AdmissionOracle(scenario)
    observed = Observed()
    for piece in pieces_of(scenario, chooser):
        shuffled = chooser.sample(piece, len(piece))
        take(plan, observed, let_time_pass(engine, piece[0][1].at, chooser))
        tick = piece[-1][1] if piece[-1][1].kind == "tick" and chooser.random() < 0.5 else None
        rows = [item for item in shuffled if item[1] is not tick]
        for offset, row in piece:
            oracle.take(offset, row)
        results = engine.process(scenario.arrivals(plan, rows), now=None if tick is None else tick.at)
        observed.ledger.update([] if tick is None else ["received", "tick"])
        take(plan, observed, results)
        balanced(engine)
        assert engine.clock == oracle.now, f"clock {engine.clock}, expected {oracle.now}"
        for key in oracle.partitions:
            found = engine.definitive("Q", key)
            assert found == oracle.definitive(key), (
                f"definitive time of {key} after offset {piece[-1][0]}: {found}, expected {oracle.definitive(key)}"
            )
        if chooser.random() < 0.5:
            engine = Engine.restore(plan, engine.snapshot(), matcher=chooser.choice(("auto", "reference")))
    take(plan, observed, engine.flush())
    balanced(engine)
    assert engine.next_wake() is None, "nothing is due after a flush"
    return observed


def let_time_pass(engine: Engine, until: int, chooser: random.Random) -> Results:
    """Sometimes a call with no records in between; nothing comes out before the moment that the engine named."""
    arrivals, clock = Arrivals.empty(engine.plan), engine.clock
    if clock is None or until <= clock or chooser.random() < 0.7:
        return Results()
    wake = engine.next_wake()
    quiet = until if wake is None else min(wake - 1, until)
    if quiet > clock:
        silent = engine.process(arrivals, now=quiet)
        assert not len(silent.outputs), f"before the moment {wake} that next_wake named: {silent.outputs}"
        assert not len(silent.ledger), f"something happened before next_wake, {wake}: {silent.ledger.to_pylist()}"
        assert not any(len(table) for table in silent.matches.values()), f"a match before next_wake, {wake}"
    return engine.process(arrivals, now=chooser.randint(clock, until))


def pieces_of(scenario: Scenario, chooser: random.Random) -> Iterator[list[tuple[int, Row]]]:
    """The ordered rows, cut at random places."""
    rows = scenario.ordered()
    longest = 1 if chooser.random() < 0.1 else max(1, len(rows) // chooser.choice((8, 4, 2, 1)))
    position = 0
    while position < len(rows):
        length = chooser.randint(1, longest)
        yield rows[position : position + length]
        position += length


def take(plan: Plan, observed: Observed, results: Results, name: str = "Q") -> None:
    """Add one call's results for a query, in the promised order; what concerns no query counts too."""
    results = in_order(plan, results)
    query = plan.query(name)
    for what, count in totals(results.ledger, name).items():
        observed.ledger[what] += count
    for row in columns(results.matches.get(name)):
        observed.ids.append(row["match_id"])
        key = tuple(row["key"][part] for part in query.keys)
        offsets = tuple(row["members"][term.name]["offset"] for term in query.terms)
        observed.matches.append(Found(offsets, key, row["time"], row["emitted"], row["_step"], row["definitive"]))
    for row in columns(results.discarded):
        if row["query"] in {name, ""}:
            observed.discards.append((row["offset"], row["reason"], row["bound"]))
    for row in columns(results.outputs):
        if row["query"] in {name, ""}:
            shown = tuple(row[part] for part in ("kind", "text", "key", "time", "emitted", "match_id"))
            observed.outputs.append(shown)


def columns(table: pa.Table | None) -> list[dict[str, Any]]:
    """Rows of a table, moments as integer microseconds."""
    if table is None:
        return []
    for index, item in enumerate(table.schema):
        if pa.types.is_timestamp(item.type):
            table = table.set_column(index, item.name, table.column(index).cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def totals(ledger: pa.Table, name: str) -> Counter[str]:
    """The ledger's counts of a query, over all sources; what concerns no query counts too."""
    found: Counter[str] = Counter()
    for row in ledger.to_pylist():
        if row["query"] in {name, ""}:
            found[row["what"]] += row["count"]
    return counted(found)


def counted(account: Counter[str]) -> Counter[str]:
    """Without zeros."""
    return Counter({what: count for what, count in account.items() if count})


def balanced(engine: Engine) -> None:
    """received = used + discarded + pending, for every query and source."""
    accounts: Counter[tuple[str, str]] = Counter()
    for row in engine.ledger().to_pylist():
        assert row["count"] >= 0 or row["what"] == "pending", f"negative account {row}"
        accounts[row["query"], row["source"]] += row["count"] * (-1 if row["what"] == "received" else 1)
    assert not any(accounts.values()), f"ledger does not add up: {dict(accounts)}\n{engine.ledger().to_pylist()}"


def reproduction(scenario: Scenario, seed: int) -> str:
    """The query, the table, and Python to run it again."""
    lines = [scenario.query(), *(f"  {offset:3} {row}" for offset, row in scenario.ordered()), ""]
    lines += ["from math import inf, nan", "from tests.differential.compare import check"]
    lines += ["from tests.support.conditions import *", "from tests.support.scenario import *"]
    return "\n".join([*lines, f"check({scenario!r}, seed={seed})"])


def fails(scenario: Scenario, seed: int, plan: Plan | None = None) -> bool:
    """Whether the check fails."""
    try:
        check(scenario, seed=seed, plan=plan)
    except AssertionError:
        return True
    return False

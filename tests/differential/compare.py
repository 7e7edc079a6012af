"""Runs one scenario through the engine in several ways and through the oracles, and says where they differ.

`check(scenario)` raises an AssertionError whose text is the query, the table and Python that makes the scenario again.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import querylang
from querylang.errors import EnsueError
from querylang.plan.model import Plan, QueryPlan
from runtime.columns import rows as shelf
from runtime.columns.arrivals import Arrivals
from runtime.columns.keys import cells_of_values
from runtime.engine.engine import Engine
from runtime.results.schemas import Results, in_order
from tests.support import duckdb_oracle, pattern_oracle
from tests.support.admission_oracle import AdmissionOracle
from tests.support.candidates import TooManyError
from tests.support.case_text import case_lines, text_of
from tests.support.pattern_oracle import Found
from tests.support.scenario import SECOND, Row, Scenario, arrivals_of, query_text

DISCARDS = ("late", "out_of_order", "null_key", "null_time", "malformed", "unknown_type")


@dataclass
class Observed:
    """What one way of running gave for one query, in the order in which it came out."""

    matches: list[Found] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    points: list[dict[str, int]] = field(default_factory=list)
    discards: list[tuple[int, str, int | None]] = field(default_factory=list)
    outputs: list[tuple[Any, ...]] = field(default_factory=list)
    ledger: Counter[str] = field(default_factory=Counter)


def plan_of(*scenarios: Scenario) -> Plan:
    """The plan of the scenarios' query text, parameters at their defaults."""
    plan = querylang.compile_text(query_text(scenarios)).plan
    return Plan(plan.events, tuple(instance for query in plan.queries for instance in querylang.instances_of(query)))


def check(scenario: Scenario, *, seed: int = 0, plan: Plan | None = None) -> AdmissionOracle:
    """Every way of running gives the same, and it is what the oracles say; raises AssertionError.

    `seed` decides how the arrivals are cut; `plan`: another one than the scenario's own.
    """
    (admitted,) = check_together([scenario], seed=seed, plan=plan)
    return admitted


def check_together(scenarios: Sequence[Scenario], *, seed: int = 0, plan: Plan | None = None) -> list[AdmissionOracle]:
    """`check` for several queries over one stream, in one plan; half of them are run in pieces too."""
    try:
        return _check(scenarios, plan or plan_of(*scenarios), random.Random(seed))
    except Disagreement as error:
        raise AssertionError(f"{error}\n{reproduction(error.scenario, seed)}") from error
    except Exception as error:
        if len(scenarios) > 1:
            raise
        raise AssertionError(f"{type(error).__name__}: {error}\n{reproduction(scenarios[0], seed)}") from error


class Disagreement(AssertionError):
    """Two ways of running differ for one of the queries."""

    def __init__(self, scenario: Scenario, text: str) -> None:
        super().__init__(text)
        self.scenario = scenario


def _check(scenarios: Sequence[Scenario], plan: Plan, chooser: random.Random) -> list[AdmissionOracle]:
    truths = [pattern_oracle.run(scenario) for scenario in scenarios]
    at_once = {matcher: run_together(plan, scenarios, matcher) for matcher in ("auto", "reference")}
    cut = chooser.sample(scenarios, (len(scenarios) + 1) // 2)
    pieces = run_in_pieces(part_of(plan, cut), cut, chooser)
    for scenario, (admitted, matches) in zip(scenarios, truths, strict=True):
        try:
            expected = expectation(admitted, matches)
            runs = {matcher: observed[scenario.name] for matcher, observed in at_once.items()}
            _compare(scenario, expected, runs, pieces.get(scenario.name, at_once["auto"][scenario.name]))
        except AssertionError as error:
            raise Disagreement(scenario, str(error)) from error
    return [admitted for admitted, _ in truths]


def part_of(plan: Plan, scenarios: Sequence[Scenario]) -> Plan:
    """The plan of some of the queries only."""
    return Plan(plan.events, tuple(plan.query(scenario.name) for scenario in scenarios))


def _compare(scenario: Scenario, expected: Observed, at_once: Mapping[str, Observed], pieces: Observed) -> None:
    for matcher, observed in at_once.items():
        same(f"{matcher} and oracle", observed, expected)
        assert observed.points == expected_points(scenario, expected), f"{matcher}: points {observed.points}"
    assert at_once["auto"].ids == at_once["reference"].ids, "match ids of the two matchers"
    outputs = at_once["auto"].outputs
    assert outputs == at_once["reference"].outputs, "outputs of the two matchers"
    same("pieces and oracle", pieces, expected)
    assert pieces.ids == at_once["auto"].ids, "match ids of pieces"
    assert sorted(pieces.outputs, key=repr) == sorted(outputs, key=repr), (
        f"outputs of pieces\n  at once {outputs}\n  pieces  {pieces.outputs}"
    )
    assert pieces.outputs == outputs, f"order of outputs\n  at once {outputs}\n  pieces  {pieces.outputs}"
    if scenario.prints:
        printed = [(row[0], row[1] if row[0] == "print" else "", *row[2:]) for row in outputs if row[-1] is not None]
        wanted = expected_prints(scenario, at_once["auto"])
        assert printed == wanted, f"printed texts\n  found    {printed}\n  expected {wanted}"
    if duckdb_oracle.can_say(scenario):
        duckdb_oracle.load(scenario)
        found, answer = sorted(match.offsets for match in at_once["auto"].matches), duckdb_oracle.find(scenario)
        assert found == answer, f"DuckDB\n  engine {found}\n  SQL    {answer}"


def expectation(admitted: AdmissionOracle, matches: list[Found]) -> Observed:
    """What the oracles say."""
    discards = [
        (fate.offset, fate.what, None if fate.bound is None else int(fate.bound))
        for fate in admitted.fates
        if fate.what in DISCARDS
    ]
    ledger = Counter(fate.what for fate in admitted.fates)
    ledger["received"] = len(admitted.fates)
    return Observed(matches, [], [], discards, [], ledger)


def expected_points(scenario: Scenario, expected: Observed) -> list[dict[str, int]]:
    """The times of the waits that have a name, a match each."""
    times = dict(_times(scenario))
    return [_points(scenario, [times[offset] for offset in match.offsets if offset]) for match in expected.matches]


def _times(scenario: Scenario) -> Iterator[tuple[int, int]]:
    """The time of each row's event, as an input takes it."""
    for offset, row in scenario.ordered():
        index = scenario.input_of(row.kind)
        if index is not None:
            time = row.at if scenario.inputs[index].wait is None else row.time
            yield offset, -1 if time is None else time


def _points(scenario: Scenario, times: list[int]) -> dict[str, int]:
    points: dict[str, int] = {}
    if scenario.every is None and scenario.leading is not None and scenario.leading.name is not None:
        points[scenario.leading.name] = min(times) - scenario.leading.length
    if scenario.trailing is not None and scenario.trailing.name is not None:
        points[scenario.trailing.name] = max(times) + scenario.trailing.length
    return points


def expected_prints(scenario: Scenario, observed: Observed) -> list[tuple[Any, ...]]:
    """What a query prints that prints all of its events, or all that it selects; that fails where there is none."""
    printed: list[tuple[Any, ...]] = []
    for match, match_id in zip(observed.matches, observed.ids, strict=True):
        offsets = dict(zip(scenario.names, match.offsets, strict=False))
        texts = [event_text(scenario, offsets[name] or 0) for name in scenario.printed if name in offsets]
        texts += [text_of(value) for value in match.selected]
        key = json.dumps(dict(zip(scenario.keys, match.key, strict=True)), ensure_ascii=False)
        kind, text = ("error", "") if None in match.selected else ("print", "|".join(texts))
        printed.append((kind, text, key, match.time, match.emitted, match_id))
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
    found = with_near_floats(found, wanted)
    shown = f"matches\n  found    {found}\n  expected {wanted}"
    assert sorted(found, key=repr) == sorted(wanted, key=repr), f"{title}: {shown}"
    account = counted(observed.ledger)
    assert account == expected.ledger, f"{title}: ledger\n  found    {account}\n  expected {expected.ledger}"
    assert found == wanted, f"{title}: order of {shown}"


def match_key(match: Found) -> tuple[Any, ...]:
    """What must be equal of two matches; the number of a step is each one's own."""
    return (match.offsets, match.key, match.time, match.emitted, match.definitive, match.selected)


def with_near_floats(found: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """What was found, where floats that are as good as those wanted are those wanted."""
    if len(found) != len(wanted):
        return found
    return [
        (*one[:-1], other[-1]) if near(one[-1], other[-1]) else one for one, other in zip(found, wanted, strict=True)
    ]


def near(found: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    """Equal, apart from the last digits of floats; of the same types."""
    return len(found) == len(wanted) and all(map(_is_near, found, wanted))


def _is_near(found: Any, wanted: Any) -> bool:
    if not (isinstance(found, float) and isinstance(wanted, float)):
        return type(found) is type(wanted) and bool(found == wanted)
    return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(found) and math.isnan(wanted))


def run_at_once(plan: Plan, scenario: Scenario, matcher: str) -> Observed:
    """All rows in one call, then the flush; what the scenario's query gave."""
    return run_together(plan, [scenario], matcher)[scenario.name]


def run_together(plan: Plan, scenarios: Sequence[Scenario], matcher: str) -> dict[str, Observed]:
    """The rows of the first in one call, then the flush; what each query gave, by name."""
    engine = Engine(plan, matcher=matcher)
    observed = {scenario.name: Observed() for scenario in scenarios}
    take(plan, observed, engine.process(arrivals_of(scenarios, plan, scenarios[0].ordered())))
    balanced(engine)
    take(plan, observed, engine.flush())
    balanced(engine)
    ledger = engine.ledger().to_pylist()
    for name, own in observed.items():
        assert totals(ledger, name) == counted(own.ledger), "the ledger is the sum of its changes"
    return observed


def run_in_pieces(plan: Plan, scenarios: Sequence[Scenario], chooser: random.Random) -> dict[str, Observed]:
    """The rows in calls of random length, each call's rows shuffled, the state saved and read in between.

    After each call the definitive time of every key is compared with the oracle's. Half of the time the keys that a call
    does not concern stay in the cold store, as if the state were large.
    """
    small = patch.multiple(shelf, LEAST=0, SMALL=0) if chooser.random() < 0.5 else nullcontext()
    with small:
        return _in_pieces(plan, scenarios, chooser)


def _in_pieces(plan: Plan, scenarios: Sequence[Scenario], chooser: random.Random) -> dict[str, Observed]:
    scenario = scenarios[0]
    engine = Engine(plan, matcher=chooser.choice(("auto", "reference")))
    oracles = {item.name: AdmissionOracle(item) for item in scenarios}
    observed = {item.name: Observed() for item in scenarios}
    for piece in pieces_of(scenario, chooser, (8, 4, 2, 1) if len(scenarios) == 1 else (3, 2, 1)):
        shuffled = chooser.sample(piece, len(piece))
        take(plan, observed, let_time_pass(engine, piece[0][1].at, chooser))
        tick = piece[-1][1] if piece[-1][1].kind == "tick" and chooser.random() < 0.5 else None
        rows = [item for item in shuffled if item[1] is not tick]
        results = engine.process(arrivals_of(scenarios, plan, rows), now=None if tick is None else tick.at)
        for own in observed.values():
            own.ledger.update([] if tick is None else ["received", "tick"])
        take(plan, observed, results)
        balanced(engine)
        for name, oracle in oracles.items():
            for offset, row in piece:
                oracle.take(offset, row)
            same_clocks(engine, name, oracle)
        if chooser.random() < 0.5:
            engine = Engine.restore(plan, engine.snapshot(), matcher=chooser.choice(("auto", "reference")))
    take(plan, observed, engine.flush())
    balanced(engine)
    assert engine.next_wake() is None, "nothing is due after a flush"
    return observed


def same_clocks(engine: Engine, name: str, oracle: AdmissionOracle) -> None:
    """The clock and the definitive time of every key."""
    assert engine.clock == oracle.now, f"clock {engine.clock}, expected {oracle.now}"
    for key in oracle.partitions:
        own = tuple(cells_of_values(engine.plan, engine.plan.query(name), key))
        found, expected = engine.definitive(name, own), oracle.definitive(key)
        assert found == expected, f"{name}: definitive time of {key} is {found}, expected {expected}"


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


def pieces_of(scenario: Scenario, chooser: random.Random, parts: Sequence[int]) -> Iterator[list[tuple[int, Row]]]:
    """The ordered rows, cut at random places; a piece has at most one of these parts of them."""
    rows = scenario.ordered()
    longest = 1 if chooser.random() < 0.05 else max(1, len(rows) // chooser.choice(parts))
    position = 0
    while position < len(rows):
        length = chooser.randint(1, longest)
        yield rows[position : position + length]
        position += length


def take(plan: Plan, observed: Mapping[str, Observed], results: Results) -> None:
    """Add one call's results for each query, in the promised order; what concerns no query counts for all."""
    results = in_order(plan, results)
    discarded, outputs, ledger = columns(results.discarded), columns(results.outputs), results.ledger.to_pylist()
    for name, own in observed.items():
        query = plan.query(name)
        for what, count in totals(ledger, name).items():
            own.ledger[what] += count
        for row in columns(results.matches.get(name)):
            own.ids.append(row["match_id"])
            own.points.append(row.get("points", {}))
            own.matches.append(match_of(query, row))
        for row in discarded:
            if row["query"] in {name, ""}:
                own.discards.append((row["offset"], row["reason"], row["bound"]))
        for row in outputs:
            if row["query"] in {name, ""}:
                shown = tuple(row[part] for part in ("kind", "text", "key", "time", "emitted", "match_id"))
                own.outputs.append(shown)


def match_of(query: QueryPlan, row: dict[str, Any]) -> Found:
    """A row of a match table."""
    key = tuple(row["key"][part] for part in query.key_names)
    members = [] if query.every is not None else [row["members"][term.name] for term in query.terms]
    offsets = tuple(None if member is None else member["offset"] for member in members)
    times = (row["time"], row["emitted"], row["_step"], row["definitive"])
    return Found(offsets, key, *times, tuple(row.get("selected", {}).values()))


def columns(table: pa.Table | None) -> list[dict[str, Any]]:
    """Rows of a table, moments as integer microseconds."""
    if table is None:
        return []
    for index, item in enumerate(table.schema):
        if pa.types.is_timestamp(item.type):
            table = table.set_column(index, item.name, table.column(index).cast(pa.int64()))
        if item.name == "points":
            whole = pa.struct([(field.name, pa.int64()) for field in item.type])
            table = table.set_column(index, item.name, table.column(index).cast(whole))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def totals(ledger: list[dict[str, Any]], name: str) -> Counter[str]:
    """The counts of a query in the ledger's rows, over all sources; what concerns no query counts too."""
    found: Counter[str] = Counter()
    for row in ledger:
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
    """The query, the table, a case file, and Python to run it again."""
    lines = [scenario.query(), *(f"  {offset:3} {row}" for offset, row in scenario.ordered()), ""]
    lines += ["# Q.case.yaml, beside the query above as Q.query", *case_lines(scenario), ""]
    lines += ["from math import inf, nan", "from tests.differential.compare import check"]
    lines += ["from tests.support.conditions import *", "from tests.support.patterns import *"]
    lines += ["from tests.support.scenario import *"]
    return "\n".join([*lines, f"check({scenario!r}, seed={seed})"])


def fails(scenario: Scenario, seed: int, plan: Plan | None = None) -> bool:
    """Whether the check fails."""
    try:
        check(scenario, seed=seed, plan=plan)
    except AssertionError as error:
        return not isinstance(error.__cause__, TooManyError | EnsueError)
    return False

"""Runs one timed stream through the engine in several ways and through the oracle of time, and says where they differ.

`check(query)` raises an AssertionError whose text is the inputs with their policies, the records, and Python that runs them again.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from querylang.plan.model import Plan, TimePolicy
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.replay.records import Records
from runtime.replay.steps import replay_steps
from runtime.results.schemas import Results
from tests.support.time_oracle import LONG_AGO, NEVER, REASONS, TimeOracle, run
from tests.support.timed import END_EDGE, Record, Timed
from tests.support.timed_engine import arrivals_of, plan_of, printed

USED = {"used": None, "adjusted_late": "late", "adjusted_out_of_order": "out_of_order"}
"""Words of the ledger, and what an event that is counted there says of its adjustment."""


SHORT = 40
"""Streams of so many records are looked at record by record."""
END_OF_TIME = 253_402_300_799_999_999
"""The last moment of the year 9999."""


@dataclass
class Seen:
    """What one way of running gave, in an order in which it can be compared.

    `released`: offset, key, time, adjusted, end, emitted, definitive of each event, as its query gave them; `discarded`: offset, reason,
    bound, arrival; `account`: by source and word of the ledger.
    """

    released: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: defaultdict(list))
    discarded: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: defaultdict(list))
    account: dict[str, Counter[tuple[str, str]]] = field(default_factory=lambda: defaultdict(Counter))


def check(query: Timed, *, seed: int = 0) -> TimeOracle:
    """Every way of running gives what the oracle says; raises AssertionError. `seed` decides how the arrivals are cut."""
    try:
        return _check(query, random.Random(seed))
    except Exception as error:
        what = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        raise AssertionError(f"{what}\n{reproduction(query, seed)}") from error


def fails(query: Timed, seed: int) -> bool:
    """Whether the check fails."""
    try:
        check(query, seed=seed)
    except AssertionError:
        return True
    return False


def _check(query: Timed, chooser: random.Random) -> TimeOracle:
    plan, truth = plan_of(query), run(query)
    expected = expectation(plan, query, truth)
    same("all at once", at_once(plan, query), expected)
    same("in pieces", in_pieces(plan, query, chooser), expected)
    if len(query.records) <= SHORT and chooser.random() < 0.3:
        same_steps(plan, query)
    return truth


# ------------------------------------------------------------------------------------------------------- expectation


def expectation(plan: Plan, query: Timed, truth: TimeOracle) -> Seen:
    """What the oracle says of each query of the plan."""
    seen = Seen()
    for place, one in enumerate(plan.queries):
        own = [event for event in truth.released if event.input == place]
        seen.released[one.title] = [
            (event.offset, event.key, event.time, USED[event.what], event.end, event.emitted, moment(event.definitive))
            for event in own
        ]
        seen.discarded[one.title] = [
            (fate.offset, fate.what, moment(fate.bound), fate.arrival) for fate in truth.fates if fate.what in REASONS
        ]
        seen.account[one.title] = truth.account()
    return seen


def moment(bound: float | None) -> int | None:
    """A bound as the engine shows it: none where there is none, the last moment of the year 9999 for beyond all times."""
    if bound is None or bound == LONG_AGO:
        return None
    return END_OF_TIME if bound == NEVER else int(bound)


def same(way: str, found: Seen, expected: Seen) -> None:
    """Compare in the order in which a difference is easiest to understand."""
    for title in expected.account:
        for what in ("discarded", "released"):
            got, wanted = getattr(found, what)[title], getattr(expected, what)[title]
            assert got == wanted, f"{way}: {title}: {what}\n  found    {got}\n  expected {wanted}"
        got, wanted = found.account[title], expected.account[title]
        assert got == wanted, f"{way}: {title}: account\n  found    {dict(got)}\n  expected {dict(wanted)}"


# ----------------------------------------------------------------------------------------------------- ways of running


def at_once(plan: Plan, query: Timed) -> Seen:
    """All records in one call, then the end."""
    engine, seen = Engine(plan), Seen()
    take(seen, plan, engine.process(arrivals_of(plan, query.ordered())))
    take(seen, plan, engine.flush())
    same_account(engine, seen)
    return seen


def in_pieces(plan: Plan, query: Timed, chooser: random.Random) -> Seen:
    """The records in calls of random length, shuffled, the state saved and read in between, time passing between them.

    After each call the definitive time of every key and the accounts are compared with the oracle's.
    """
    engine, oracle, seen = Engine(plan), TimeOracle(query), Seen()
    latest: dict[Any, int] = {}
    for piece in pieces(query.ordered(), chooser):
        take(seen, plan, let_time_pass(engine, piece[0][1].at, chooser))
        take(seen, plan, engine.process(arrivals_of(plan, chooser.sample(piece, len(piece)))))
        for offset, record in piece:
            oracle.take(offset, record)
        same_moment(engine, oracle, query, latest)
        for title in seen.account:
            assert seen.account[title] == oracle.account(), (
                f"{title}: account after record {piece[-1][0]}\n  found    {dict(seen.account[title])}"
                f"\n  expected {dict(oracle.account())}"
            )
        if chooser.random() < 0.4:
            engine = Engine.restore(plan, engine.snapshot())
    take(seen, plan, engine.flush())
    return seen


def same_moment(engine: Engine, oracle: TimeOracle, query: Timed, latest: dict[Any, int]) -> None:
    """The clock, and the definitive time of every key, which never goes back."""
    assert engine.clock == oracle.now, f"clock {engine.clock}, expected {oracle.now}"
    for key in keys_of(query):
        expected = moment(oracle.definitive(key))
        for one in engine.plan.queries:
            found = engine.definitive(one.title, key)
            assert found == expected, f"{one.title}: definitive time of {key} is {found}, expected {expected}"
            before = latest.get((one.title, key))
            assert before is None or (found is not None and found >= before), f"definitive time went back: {before}"
            if found is not None:
                latest[one.title, key] = found


def keys_of(query: Timed) -> list[tuple[Any, ...]]:
    """The keys that the stream has."""
    found = {record.values(query.keys) for record in query.records if record.event is not None}
    return sorted(key for key in found if None not in key)


def let_time_pass(engine: Engine, until: int, chooser: random.Random) -> Results:
    """Sometimes a call with no records in between."""
    clock = engine.clock
    if clock is None or until <= clock or chooser.random() < 0.7:
        return Results()
    wake = engine.next_wake()
    quiet = until if wake is None else min(wake - 1, until)
    if quiet > clock:
        silent = engine.process(Arrivals.empty(engine.plan), now=quiet)
        assert not len(silent.ledger), f"something happened before next_wake, {wake}: {silent.ledger.to_pylist()}"
    return engine.process(Arrivals.empty(engine.plan), now=chooser.randint(clock, until))


def pieces(rows: list[tuple[int, Record]], chooser: random.Random) -> Iterator[list[tuple[int, Record]]]:
    """Cut at random places; of the short streams one in three record by record."""
    longest = chooser.choice((1, 3, len(rows) // 2 + 1) if len(rows) <= SHORT else (len(rows) // 2, len(rows) // 5))
    position = 0
    while position < len(rows):
        length = chooser.randint(1, longest)
        yield rows[position : position + length]
        position += length


def same_account(engine: Engine, seen: Seen) -> None:
    """The ledger is the sum of its changes, no count is negative, and every query's adds up."""
    total: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for row in engine.ledger().to_pylist():
        assert row["count"] > 0, f"negative account {row}"
        total[row["query"]][row["source"], row["what"]] += row["count"]
    for title, account in total.items():
        assert account == seen.account[title], f"ledger {dict(account)}, its changes {dict(seen.account[title])}"


def take(seen: Seen, plan: Plan, results: Results) -> None:
    """Add what one call gave."""
    for one in plan.queries:
        table = results.matches.get(one.title)
        released = [_released(one.key_names, row) for row in rows_of(table)]
        released.sort(key=lambda item: (item[0], item[1], repr(item[2][1]), item[2][2], item[3]))
        seen.released[one.title] += [item[2] for item in released]
        refused = [row for row in rows_of(results.discarded) if row["query"] == one.title]
        refused.sort(key=lambda row: row["_step"])
        seen.discarded[one.title] += [(row["offset"], row["reason"], row["bound"], row["arrival"]) for row in refused]
        account = seen.account[one.title]
        for row in results.ledger.to_pylist():
            if row["query"] == one.title:
                account[row["source"], row["what"]] += row["count"]
        seen.account[one.title] = Counter({what: count for what, count in account.items() if count})


def _released(names: tuple[str, ...], row: dict[str, Any]) -> tuple[Any, ...]:
    member = row["members"]["a"]
    key = tuple(row["key"][name] for name in names)
    what = (member["time"], member.get("adjusted"), member.get("end"))
    shown = (member["offset"], key, *what, row["emitted"], row["definitive"])
    return row["emitted"], row["_step"], shown, row["_rank"]


def rows_of(table: pa.Table | None) -> list[dict[str, Any]]:
    """Rows, moments as integers, those of members too."""
    if table is None or not len(table):
        return []
    found: list[dict[str, Any]] = table.cast(without_moments(table.schema)).to_pylist()
    return found


def without_moments(schema: pa.Schema) -> pa.Schema:
    """The schema with integers for moments."""
    return pa.schema([item.with_type(_without_moments(item.type)) for item in schema])


def _without_moments(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([item.with_type(_without_moments(item.type)) for item in kind])
    return kind


# ------------------------------------------------------------------------------------------------------------ steps


def same_steps(plan: Plan, query: Timed) -> None:
    """What `--format steps` says of each record: its time, adjustment, refusal, and definitive time."""
    numbered = query.ordered()
    oracle = TimeOracle(query)
    arrivals = arrivals_of(plan, numbered)
    records = Records(arrivals, np.array([offset for offset, _ in numbered]), tuple(sorted(sources_of(query))))
    steps = list(replay_steps(plan, records))
    for (offset, record), step in zip(numbered, (step for step in steps if step.row is not None), strict=True):
        fate = oracle.take(offset, record)
        reason = fate.what if fate.what in REASONS else None
        found: tuple[Any, ...] = (step.row, step.at, step.adjusted, step.discarded)
        expected: tuple[Any, ...] = (offset, oracle.now, USED.get(fate.what), reason)
        if record.shape != END_EDGE and fate.what != "heartbeat":
            found, expected = (*found, step.time), (*expected, fate.time)
        if fate.what in USED or reason in ("early", "late", "out_of_order"):
            found = (*found, step.definitive)
            expected = (*expected, moment(oracle.definitive(record.values(query.keys))))
        assert found == expected, f"step of record {offset}\n  found    {found}\n  expected {expected}"
    oracle.finish()
    shown = [(step.at, step.row, match["members"]["a"]["row"]) for step in steps for match in step.matches]
    released = [(event.emitted, event.step, event.offset) for event in oracle.released]
    wanted = [(at, None if step < 0 else numbered[step][0], offset) for at, step, offset in released]
    assert sorted(shown, key=str) == sorted(wanted, key=str), (
        f"matches of steps\n  found    {shown}\n  expected {wanted}"
    )


def sources_of(query: Timed) -> set[str]:
    """The sources that the stream has."""
    return {record.source for record in query.records}


# ------------------------------------------------------------------------------------------------- making it smaller


def smallest(query: Timed, fails: Callable[[Timed], bool]) -> Timed:
    """The query and stream with one thing after the other left out, as long as it still fails."""
    found = True
    while found:
        found = False
        for simpler in simplifications(query):
            if simpler != query and fails(simpler):
                query, found = simpler, True
                break
    return query


def simplifications(query: Timed) -> Iterator[Timed]:
    """The same with less in it, the boldest first."""
    width = len(query.records) // 2
    while width:
        for start in range(0, len(query.records), width):
            yield replace(query, records=query.records[:start] + query.records[start + width :])
        width //= 2
    for index in range(len(query.keys)):
        yield replace(query, keys=query.keys[:index] + query.keys[index + 1 :])
    yield replace(query, inputs=tuple(replace(item, sources=()) for item in query.inputs))
    for index, item in enumerate(query.inputs):
        before, after = query.inputs[:index], query.inputs[index + 1 :]
        if (before or after) and item.event not in {other.policy.imports for other in before + after if other.policy}:
            kept = tuple(record for record in query.records if record.event != item.event)
            kept = tuple(one for one in kept if one.punctuation is None or one.punctuation[0] != item.event)
            yield replace(query, inputs=before + after, records=kept)
        simpler = [replace(item, least=None), replace(item, heartbeat=None)]
        simpler += [replace(item, policy=policy) for policy in simpler_policies(item.policy)]
        yield from (replace(query, inputs=(*before, one, *after)) for one in simpler)
    for index, record in enumerate(query.records):
        for name, value in (("source", "s"), ("partition", 0), ("k", 0), ("c", "x"), ("v", 1)):
            changes: dict[str, Any] = {name: value}
            plainer = replace(record, **changes)
            yield replace(query, records=(*query.records[:index], plainer, *query.records[index + 1 :]))


def simpler_policies(policy: TimePolicy | None) -> Iterator[TimePolicy]:
    """The policy with one setting at its simplest."""
    if policy is None:
        return
    for name, value in (("early", None), ("idle", None), ("partitions", None), ("is_final", False), ("disorder", 0)):
        yield replace(policy, **{name: value})  # type: ignore[arg-type]


def reproduction(query: Timed, seed: int) -> str:
    """The query, the records, and Python to run it again."""
    lines = [printed(query), "", "from math import inf", "from querylang.plan.model import TimePolicy"]
    lines += ["from tests.differential.timed_compare import check", "from tests.support.timed import *"]
    return "\n".join([*lines, f"check({query!r}, seed={seed})"])

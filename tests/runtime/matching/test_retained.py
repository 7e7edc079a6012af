"""What is kept between calls: nothing that may still matter is dropped, and what is kept is what the documents say.

Three accounts of the released events of a partition, after each call over random streams of every construct:
- *needed*: some future makes use of it (`tests.support.retention`, by trying futures);
- *kept*: what the engine has;
- *ruled*: the rule of docs/matching.md, "What is kept", written again here.

needed <= kept = ruled always holds. needed = kept holds where nothing but windows decides. The rule looks at one event at a
time, so it keeps more than is needed where others decide; `EXCESS` has a case for each way in which that happens.
Events that are not definitive yet, and match sets that wait, are counted apart.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from querylang.plan.describe import describe
from runtime.engine.engine import Engine
from tests.differential.compare import pieces_of, plan_of
from tests.differential.patterns import random_queries
from tests.support.admission_oracle import AdmissionOracle, Key, Released
from tests.support.candidates import TooManyError, unique_value
from tests.support.conditions import Aggregate
from tests.support.pattern_oracle import timer_of
from tests.support.patterns import (
    Both,
    Chain,
    Clause,
    Either,
    Every,
    Leaf,
    Pattern,
    Wait,
    Within,
    Without,
    chain,
    leaves_of,
)
from tests.support.retention import needed
from tests.support.scenario import SECOND, InputSetup, Row, Scenario, arrivals_of

UNITS = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1, "millisecond": 0.001}


@dataclass(frozen=True)
class Account:
    """The events of one call, by offset; `by_key`: those kept, with their key and input."""

    needed: set[int]
    kept: set[int]
    ruled: set[int]


def accounts(scenario: Scenario, seed: int) -> Iterator[Account]:
    """The account after each call. Raises TooManyError."""
    chooser, plan = random.Random(seed), plan_of(scenario)
    engine, oracle = Engine(plan), AdmissionOracle(scenario, timer_of(scenario))
    bounds = printed_bounds(describe(plan.queries[0]))
    for piece in pieces_of(scenario, chooser, (2, 3)):
        engine.process(arrivals_of([scenario], plan, piece))
        for offset, row in piece:
            oracle.take(offset, row)
        kept, pending = kept_by(engine)
        assert pending == {item.offset for part in oracle.partitions.values() for item in part.waiting}
        check_waits(engine, oracle)
        assert engine.retained() == len(kept) + len(pending) + len(engine._runners[0].state.waits)
        for key, part in oracle.partitions.items():
            check_bounds(bounds, scenario, part.entered, kept, int_or_least(oracle, key))
        yield Account(
            needed={item for key, own in entered(oracle) for item in needed(scenario, own, int_or_least(oracle, key))},
            kept=kept,
            ruled={item for key, own in entered(oracle) for item in ruled(scenario, own, int_or_least(oracle, key))},
        )


def entered(oracle: AdmissionOracle) -> list[tuple[Key, list[Released]]]:
    """The events of each partition that has some."""
    return [(key, part.entered) for key, part in oracle.partitions.items() if part.entered]


def int_or_least(oracle: AdmissionOracle, key: Key) -> int:
    """The definitive time; before anything has happened an early one."""
    return int(max(oracle.definitive(key), -(2**60)))


def kept_by(engine: Engine) -> tuple[set[int], set[int]]:
    """The offsets of released and of pending events."""
    table = engine._runners[0].state.keys.events
    rows = list(zip(table.column("_offset").to_pylist(), table.column("_pending").to_pylist(), strict=True))
    return {offset for offset, is_pending in rows if not is_pending}, {
        offset for offset, is_pending in rows if is_pending
    }


def check_waits(engine: Engine, oracle: AdmissionOracle) -> None:
    """Match sets only of waits that are not over."""
    due = Counter(
        engine._runners[0]
        .state.waits.members.filter(engine._runners[0].state.waits.members.column("_is_latest"))
        .column("_due")
        .to_pylist()
    )
    alarms = Counter(alarm.due for part in oracle.partitions.values() for alarm in part.alarms)
    assert set(due) <= set(alarms)


# ---------------------------------------------------------------------------------------------------- the documented rule


def ruled(scenario: Scenario, events: Sequence[Released], definitive: int) -> set[int]:
    """What the documents say is kept of a partition."""
    return {
        event.offset
        for place, event in enumerate(events)
        if scenario.inputs[event.input].event in useful_types(scenario)
        and definitive - event.time < reach(scenario, event.input)
        and is_recent(scenario, events, place)
    }


def useful_types(scenario: Scenario) -> set[str]:
    """The types that a name other than the latest, or a `without`, may take; with `every` those of all names."""
    withouts = {clause.event for clause in scenario.clauses if isinstance(clause, Without)}
    return withouts | {leaf.event for leaf in older(scenario.pattern, is_last=scenario.every is None)}


def older(pattern: Pattern, *, is_last: bool) -> list[Leaf]:
    """The names whose event need not be the latest."""
    match pattern:
        case Leaf():
            return [] if is_last else [pattern]
        case Chain(parts):
            return [leaf for part in parts[:-1] for leaf in leaves_of(part)] + older(parts[-1], is_last=is_last)
        case Either(left, right):
            return older(left, is_last=is_last) + older(right, is_last=is_last)
        case Both():
            return list(leaves_of(pattern))


def reach(scenario: Scenario, index: int) -> float:
    """How old an event may be."""
    item = scenario.inputs[index]
    own = float("inf") if item.within is None else item.within
    whole = [clause.length for clause in scenario.clauses if isinstance(clause, Within) and not clause.between]
    if not whole or scenario.every is not None:
        return own
    silence = scenario.leading is not None and any(
        clause.event == item.event and (not clause.between or scenario.leading.name in clause.between)
        for clause in scenario.clauses
        if isinstance(clause, Without)
    )
    before = scenario.leading.length if silence and scenario.leading is not None else 0
    return min(own, min(whole) + before)


def is_recent(scenario: Scenario, events: Sequence[Released], place: int) -> bool:
    """Among the `retain` newest of its input, and no duplicate that holds no slot."""
    item = scenario.inputs[events[place].input]
    newer = [event for event in events[place + 1 :] if event.input == events[place].input]
    if item.retain is not None:
        return len(newer) < item.retain
    value = unique_value(item, events[place]) if item.unique else None
    return value is None or all(unique_value(item, event) != value for event in newer)


# ------------------------------------------------------------------------------------------------- what `explain` prints


def printed_bounds(text: str) -> dict[str, tuple[float, float]]:
    """For each event type the length in microseconds and the number of events in its line of the section `state`."""
    found = {}
    for event, line in re.findall(r"^    (\w+): at most ([^;\n]+)", text.partition("\n  state\n")[2], re.MULTILINE):
        parts = re.findall(r"([\d.]+) (day|hour|minute|second|millisecond)s?", line)
        count = re.search(r"(\d+) event", line)
        length = sum(float(number) * UNITS[unit] for number, unit in parts) * SECOND
        found[event] = (length or float("inf"), float("inf") if count is None else int(count[1]))
    return found


def check_bounds(
    bounds: dict[str, tuple[float, float]],
    scenario: Scenario,
    events: Sequence[Released],
    kept: set[int],
    definitive: int,
) -> None:
    """No more is kept of a partition than is printed."""
    assert set(bounds) == {item.event for item in scenario.inputs}
    for index, item in enumerate(scenario.inputs):
        own = [event for event in events if event.input == index and event.offset in kept]
        length, count = bounds[item.event]
        assert len(own) <= count
        assert all(definitive - event.time < length for event in own)


# ------------------------------------------------------------------------------------------------------------- the tests


def test_what_may_matter_is_kept_and_only_what_the_documents_say(request: pytest.FixtureRequest) -> None:
    """Queries of every construct with up to three names, as many as other random streams."""
    count: int = max(10, request.config.getoption("--streams") // 20)
    first: int = request.config.getoption("--streams-seed") * 1_000_000
    seen: Counter[str] = Counter()
    for seed in range(first, first + count):
        for scenario in random_queries(seed, 8):
            if len(leaves_of(scenario.pattern)) > 3:
                continue
            try:
                for account in accounts(scenario, seed):
                    assert account.needed <= account.kept, f"dropped {account} {seed}\n{scenario.query()}"
                    assert account.kept == account.ruled, f"kept {account} {seed}\n{scenario.query()}"
                    seen.update(needed=len(account.needed), kept=len(account.kept))
            except TooManyError:
                seen["too many"] += 1
    assert seen["needed"] > 10 * count
    assert seen["too many"] <= count


WINDOWS = (
    (InputSetup("A", within=10 * SECOND), InputSetup("B", within=10 * SECOND)),
    (InputSetup("A", retain=3), InputSetup("B", within=10 * SECOND)),
    (InputSetup("A", within=10 * SECOND, retain=2), InputSetup("B", retain=1)),
    (InputSetup("A", within=10 * SECOND, unique=("v",)), InputSetup("B", retain=1)),
    (InputSetup("A", retain=3, unique=("v",)), InputSetup("B", retain=1)),
    (InputSetup("A", within=60 * SECOND, wait=5 * SECOND), InputSetup("B", within=30 * SECOND, wait=3 * SECOND)),
)


@pytest.mark.parametrize("inputs", WINDOWS, ids=repr)
@pytest.mark.parametrize("clauses", [(), (Within(5 * SECOND),)], ids=repr)
def test_where_windows_alone_decide_exactly_what_is_needed_is_kept(
    inputs: tuple[InputSetup, ...], clauses: tuple[Clause, ...]
) -> None:
    chooser, most = random.Random(7), 0
    rows = tuple(
        Row(
            at * SECOND,
            chooser.choice("AB"),
            (at - chooser.randint(0, 3)) * SECOND,
            k=chooser.randint(0, 1),
            v=chooser.randint(0, 2),
        )
        for at in sorted(chooser.randint(0, 40) for _ in range(60))
    )
    for account in accounts(Scenario(inputs, chain("A", "B"), rows, keys=("k",), clauses=clauses), 1):
        assert account.needed == account.kept
        most = max(most, len(account.kept))
    assert most > 1


BOTH = (InputSetup("A", within=20 * SECOND), InputSetup("B", within=20 * SECOND))
ONE = (InputSetup("A", retain=2),)
NARROW = (InputSetup("A", within=5 * SECOND), InputSetup("B", within=20 * SECOND), InputSetup("C", within=20 * SECOND))
NO_B = Without("B", "x")

EXCESS = {
    "the next event takes a retain slot itself": (Scenario(ONE, chain("A", "A"), ()), "AAA", {2, 3}, {3}),
    "no event for the names before it": (Scenario(BOTH, chain("A", "B", "A"), ()), "BAB", {1, 2, 3}, {2, 3}),
    "no event at which the range of a without begins": (
        Scenario(BOTH, chain("A", "A"), (), clauses=(NO_B,)),
        "BAB",
        {1, 2, 3},
        {2, 3},
    ),
    "a range that is never longer than one event": (
        Scenario(BOTH, chain("A"), (), clauses=(NO_B,), trailing=Wait(5 * SECOND)),
        "ABA",
        {2},
        set(),
    ),
    "a within between": (
        Scenario(BOTH, chain("A", "B"), (), clauses=(Within(2 * SECOND, ("a1", "b2")),)),
        "AAAA",
        {1, 2, 3, 4},
        {3, 4},
    ),
    "the window of another input bounds the range of a without": (
        Scenario(NARROW, chain("A", "B"), (), clauses=(Without("C", "x"),)),
        "ACTTTTTT",
        {2},
        set(),
    ),
    "more names than retained events": (
        Scenario((InputSetup("A", retain=2),), chain("A", "A", "A"), ()),
        "AAA",
        {2, 3},
        set(),
    ),
}


@pytest.mark.parametrize("reason", EXCESS)
def test_what_more_than_needed_is_kept_and_why(reason: str) -> None:
    """An event a second, T only lets time pass; offsets of what is kept and of what is needed in the end."""
    scenario, types, kept, least = EXCESS[reason]
    rows = tuple(Row(at * SECOND, "tick" if kind == "T" else kind, v=at) for at, kind in enumerate(types, 1))
    *_, last = accounts(replace(scenario, rows=rows), 1)
    assert (last.kept, last.needed) == (kept, least)


def test_every_candidate_counts_under_every() -> None:
    """All names' events are kept, the last one's too."""
    every = Every((("s", Aggregate("count")),))
    rows = tuple(Row(at * SECOND, kind, v=at) for at, kind in enumerate("ABAB", 1))
    *_, last = accounts(Scenario(BOTH, chain("A", "B"), rows, every=every), 1)
    assert last.kept == last.needed == {1, 2, 3, 4}

"""Funnels are those of plain loops over all chains, and of DuckDB where it can say the same.

`--streams N` tries as many random queries and streams, `--streams-seed S` others than those of every day.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

import pytest

import ensue
from ensue.asking_why import funnels
from runtime.why import Funnel
from runtime.why.clauses import Clause
from tests.support.duckdb_oracle import connection

TYPES = "ABC"

ROLES = "PQR"
"""Inputs of one type."""


@dataclass(frozen=True)
class Row:
    at: int
    type: str
    k: str
    v: int
    j: str = "x"


@dataclass(frozen=True)
class Asked:
    """A condition: `where` by `names` and a number, `within`, `wait`, `without`.

    steps: for `where` those that it compares, for others the range; empty = all
    other: for a `without` the type; least: the `v` that an event of it must have at least
    """

    kind: str
    number: int
    steps: tuple[int, ...] = ()
    other: str = ""


@dataclass(frozen=True)
class Input:
    """`type`, `key`: of a role its event type, and the field with its key; None = it is not a role."""

    within: int | None
    retain: int | None
    unique: bool
    type: str | None = None
    key: str = "k"


@dataclass(frozen=True)
class Given:
    """A query and its stream. `steps`: the types of each; `nexts`: whether `=>` is behind a step."""

    inputs: dict[str, Input]
    steps: tuple[str, ...]
    nexts: tuple[bool, ...]
    conditions: tuple[Asked, ...]
    trailing: int | None
    rows: tuple[Row, ...]
    ending: str

    def text(self) -> str:
        events = "".join(f"event {item} {{ string k; integer v; string j; }}\n" for item in TYPES)
        inputs = " ".join(
            f"{name}() key k{_window(item)};"
            if item.type is None
            else f"{item.type}() as {name} key {item.key} as k{_window(item)};"
            for name, item in self.inputs.items()
        )
        parts = []
        for number, types in enumerate(self.steps):
            names = [f"{name} as {_name(number, name)}" for name in types]
            parts.append(names[0] if len(names) == 1 else f"({' or '.join(names)})")
        gaps = {item.steps[0]: item.number for item in self.conditions if item.kind == "wait"}
        pattern = parts[0]
        for number, part in enumerate(parts[1:]):
            wait = f" -> wait({gaps[number]} seconds) ->" if number in gaps else None
            pattern += f"{wait or (' =>' if self.nexts[number] else ' ->')} {part}"
        if self.trailing is not None:
            pattern += f" -> wait({self.trailing} seconds)"
        wheres = [self._clause(item) for item in self.conditions if item.kind == "where"]
        others = [self._clause(item) for item in self.conditions if item.kind in ("within", "without")]
        if len(self.rows) % 2 and wheres:  # one clause of several parts
            wheres = [" and ".join([wheres[0], *(item.removeprefix("where ") for item in wheres[1:])])]
        clauses = " ".join([*wheres, *others])
        return f"{events}query Q {{ inputs {{ {inputs} }} find {pattern} {clauses} {self.ending} }}"

    def _clause(self, item: Asked) -> str:
        names = [_name(number, self.steps[number]) for number in item.steps]
        between = f" between ({' '.join(names)})" if names else ""
        match item.kind:
            case "where" if len(names) == 1:
                return f"where {names[0]}.v > {item.number}"
            case "where":
                return f"where {names[1]}.v > {names[0]}.v + {item.number}"
            case "within":
                return f"within {item.number} seconds{between}"
        return f"without {item.other} as x where x.v > {item.number}{between}"


def _name(number: int, type_: str) -> str:
    return f"{type_.lower()}{number}"


def _window(item: Input) -> str:
    parts = [f" within {item.within} seconds" if item.within is not None else ""]
    parts.append(f" retain {item.retain}" if item.retain is not None else "")
    parts.append(" with unique v" if item.unique else "")
    return "".join(parts)


def drawn(seed: int) -> Given:
    dice = random.Random(seed)
    count = dice.choice((1, 2, 2, 3, 3, 4))
    steps = tuple(
        "".join(sorted(dice.sample(TYPES, 2))) if dice.random() < 0.12 else dice.choice(TYPES) for _ in range(count)
    )
    inputs = {
        name: Input(
            dice.randint(3, 14) if dice.random() < 0.85 else None,
            dice.randint(1, 3) if dice.random() < 0.2 else None,
            dice.random() < 0.1,
        )
        for name in TYPES
    }
    bare = [name for name, item in inputs.items() if item.within is item.retain is None]
    inputs |= {name: Input(9, None, inputs[name].unique) for name in bare}
    nexts = tuple(dice.random() < 0.12 for _ in range(count - 1))
    gaps = [Asked("wait", dice.randint(1, 4), (number,)) for number in range(count - 1) if dice.random() < 0.08]
    single = [number for number in range(count) if len(steps[number]) == 1]
    clauses = [_drawn_clause(dice, single) for _ in range(dice.choice((0, 1, 1, 2, 3)))]
    withins = dict.fromkeys(item.steps for item in clauses if item is not None and item.kind == "within")
    clauses = [item for item in clauses if item is None or item.kind != "within" or withins.pop(item.steps, 0) is None]
    order = {"where": 0, "within": 1, "without": 2}
    clauses = sorted((item for item in clauses if item is not None), key=lambda item: order[item.kind])
    rows, at = [], 0
    for _ in range(dice.randint(4, 22)):
        at += dice.choice((0, 1, 1, 2, 3))
        rows.append(Row(at, dice.choice(TYPES), dice.choice("xxy"), dice.randint(0, 6)))
    trailing = dice.randint(1, 6) if dice.random() < 0.2 else None
    ending = "" if trailing is not None else dice.choice(("", "", "after match skip past last event"))
    given = Given(inputs, steps, nexts, (*gaps, *clauses), trailing, tuple(rows), ending)
    return _with_roles(dice, given) if dice.random() < 0.4 else given


def _with_roles(dice: random.Random, given: Given) -> Given:
    """The same where two or all three of the inputs are roles of one type, of which half of the rows are."""
    names = dict(zip(TYPES[: dice.choice((2, 3))], ROLES, strict=False))
    inputs = {
        names.get(name, name): replace(item, type="A", key=dice.choice("kkj")) if name in names else item
        for name, item in given.inputs.items()
    }
    steps = tuple("".join(names.get(name, name) for name in types) for types in given.steps)
    conditions = tuple(replace(item, other=names.get(item.other, item.other)) for item in given.conditions)
    rows = tuple(replace(row, type=dice.choice(f"A{row.type}"), j=dice.choice("xy")) for row in given.rows)
    return replace(given, inputs=inputs, steps=steps, conditions=conditions, rows=rows)


def _drawn_clause(dice: random.Random, single: list[int]) -> Asked | None:
    pair = tuple(sorted(dice.sample(single, 2))) if len(single) > 1 else ()
    match dice.choice(("where", "where", "within", "without")):
        case "where":
            steps = pair if pair and dice.random() < 0.6 else tuple(dice.sample(single, min(1, len(single))))
            return Asked("where", dice.randint(-2, 3), steps) if steps else None
        case "within":
            return Asked("within", dice.randint(2, 10), pair if dice.random() < 0.4 else ())
    return Asked("without", dice.randint(0, 6), pair if dice.random() < 0.5 else (), dice.choice(TYPES))


# Plain loops.


Links = tuple[tuple[int, str], ...]
"""The positions of a chain's events, each with the input that it is an event of."""


class Loops:
    """All chains, from each first step on."""

    def __init__(self, given: Given, *, is_flushed: bool) -> None:
        self.given, self.is_flushed = given, is_flushed
        self.total = len(given.steps) + (given.trailing is not None)
        self.last = max(row.at for row in given.rows)
        self.newest = max((row.at for row in given.rows for key in "xy" if self.served_by(row, key)), default=0)

    def counts(self) -> tuple[list[int], list[Counter[tuple[str, int | None]]], list[int], list[float | None]]:
        reached, open_ = [0] * self.total, [0] * self.total
        stops: list[Counter[tuple[str, int | None]]] = [Counter() for _ in range(self.total)]
        times: list[list[int]] = [[] for _ in range(self.total)]
        for key in ("x", "y"):
            served = [(row, self.served_by(row, key)) for row in self.given.rows]
            self.rows, self.served = [row for row, names in served if names], [names for _, names in served if names]
            for first in range(len(self.rows)):
                longest, chains, why = self.of_first(first)
                if not longest:
                    continue
                for number in range(longest):
                    reached[number] += 1
                earliest = min(tuple(position for position, _ in chain) for chain in chains)
                for number, (before, after) in enumerate(pairwise(earliest), 1):
                    times[number].append(self.rows[after].at - self.rows[before].at)
                if longest < self.total:
                    if why[0][0] == 9 or (longest < len(self.given.steps) and self.is_open(first)):
                        open_[longest - 1] += 1
                    else:
                        stops[longest - 1][why[1]] += 1
        return reached, stops, open_, [median(item) if item else None for item in times]

    def served_by(self, row: Row, key: str) -> list[str]:
        """The inputs that a row is an event of, in this key."""
        each = self.given.inputs.items()
        return [name for name, item in each if row.type == (item.type or name) and getattr(row, item.key) == key]

    def is_open(self, first: int) -> bool:
        own = [self.given.inputs[name].within for name in self.given.steps[0] if name in self.served[first]]
        limits = [None if None in own else max(item for item in own if item is not None)]
        limits += [item.number for item in self.given.conditions if item.kind == "within" and not item.steps]
        known = [item for item in limits if item is not None]
        return bool(known) and self.newest - self.rows[first].at < min(known)

    def of_first(self, first: int) -> tuple[int, list[Links], Any]:
        """How far it comes, the chains that come as far, and why they end."""
        longest, chains, why = 0, list[Links](), ((0,), ("never came", None))
        todo: list[Links] = [((first, name),) for name in self.given.steps[0] if name in self.served[first]]
        todo = [chain for chain in todo if self.fails(chain) is None]
        while todo:
            chain = todo.pop()
            ends, later = self.continued(chain)
            todo += later
            length = len(chain)
            if length == len(self.given.steps) and self.given.trailing is not None and ends is None:
                length += 1
            if length > longest:
                longest, chains, why = length, [], ((0,), ("never came", None))
            if length == longest:
                chains.append(chain)
                if ends is not None and ends[0] > why[0]:
                    why = ends
        return longest, chains, why

    def continued(self, chain: Links) -> tuple[Any, list[Links]]:
        if len(chain) == len(self.given.steps):
            return (self.outlived(chain) if self.given.trailing is not None else None), []
        ends, longer = ((0,), ("never came", None)), []
        for later in range(chain[-1][0] + 1, len(self.rows)):
            for name in self.given.steps[len(chain)]:
                if name not in self.served[later]:
                    continue
                failing = self.fails((*chain, (later, name)))
                if failing is None:
                    longer.append((*chain, (later, name)))
                elif failing[0] > ends[0]:
                    ends = failing
        return ends, longer

    def in_window(self, position: int, name: str, latest: int) -> tuple[int, str] | None:
        row, item = self.rows[position], self.given.inputs[name]
        newer = [self.rows[place] for place in range(position + 1, latest + 1) if name in self.served[place]]
        if item.within is not None and self.rows[latest].at - row.at >= item.within:
            return 0, "window"
        if item.unique and any(other.v == row.v for other in newer):
            return 1, "with unique"
        if item.retain is not None and len(newer) >= item.retain:
            return 2, "retain"
        return None

    def fails(self, chain: Links) -> Any:
        """What keeps a chain, whose last event is the latest, from being one."""
        for order, (position, name) in enumerate(chain):
            gone = self.in_window(position, name, chain[-1][0])
            if gone is not None:
                kind = list(self.given.inputs).index(name)
                return (1, order, gone[0], kind), (gone[1], None)
        for rank, what in ((2, "within"), (3, "wait"), (4, "order"), (5, "where"), (6, "without")):
            if what == "order":
                is_next = len(chain) > 1 and self.is_next(len(chain) - 2)
                if is_next and chain[-1][0] != chain[-2][0] + 1:
                    return (4, 0), ("order", None)
            for index, item in enumerate(self.given.conditions):
                if item.kind == what and not self.holds(item, chain):
                    return (rank, index), (what, index)
        return None

    def is_next(self, number: int) -> bool:
        has_wait = any(item.kind == "wait" and item.steps == (number,) for item in self.given.conditions)
        return self.given.nexts[number] and not has_wait

    def holds(self, item: Asked, chain: Links) -> bool:
        rows = [self.rows[position] for position, _ in chain]
        if item.kind == "wait":
            (before,) = item.steps
            return len(chain) <= before + 1 or rows[before + 1].at >= rows[before].at + item.number
        if item.steps and max(item.steps) != len(chain) - 1:
            return True
        match item.kind:
            case "where" if len(item.steps) == 1:
                return rows[item.steps[0]].v > item.number
            case "where":
                return rows[item.steps[1]].v > rows[item.steps[0]].v + item.number
            case "within":
                first, last = (item.steps[0], item.steps[1]) if item.steps else (0, len(chain) - 1)
                return rows[last].at - rows[first].at < item.number
        if not item.steps and self.given.trailing is not None:
            return True
        (first, _), (last, _) = (chain[item.steps[0]], chain[item.steps[1]]) if item.steps else (chain[0], chain[-1])
        return not any(self.is_other(item, place, chain) for place in range(first + 1, last))

    def is_other(self, item: Asked, place: int, chain: Links) -> bool:
        """A member of the chain is not one, whatever else it serves."""
        if item.other not in self.served[place] or place in [position for position, _ in chain]:
            return False
        is_kept = place > chain[-1][0] or self.in_window(place, item.other, chain[-1][0]) is None
        return self.rows[place].v > item.number and is_kept

    def outlived(self, chain: Links) -> Any:
        assert self.given.trailing is not None
        due = self.rows[chain[-1][0]].at + self.given.trailing
        for index, item in enumerate(self.given.conditions):
            if item.kind == "without" and not item.steps:
                others = [place for place in range(chain[0][0] + 1, len(self.rows)) if self.rows[place].at < due]
                if any(self.is_other(item, place, chain) for place in others):
                    return (6, index), ("without", index)
        return None if self.is_flushed or due <= self.last else ((9, 0), ("wait", None))


def counted(given: Given, *, flush: bool) -> tuple[Funnel, ensue.Replay, Any]:
    rows = [{"at": float(row.at), "event": row.type, "k": row.k, "v": row.v, "j": row.j} for row in given.rows]
    replay = ensue.replay(given.text(), rows, flush=flush)
    (found,) = funnels(replay)
    return found, replay, replay.plan.queries[0]


def seeds(request: pytest.FixtureRequest) -> range:
    first = request.config.getoption("--streams-seed") * 1_000_000
    return range(first, first + max(40, request.config.getoption("--streams") // 5))


def test_funnels_are_those_of_plain_loops(request: pytest.FixtureRequest) -> None:
    kinds: Counter[str] = Counter()
    shared = 0
    for seed in seeds(request):
        given, flush = drawn(seed), seed % 2 == 0
        found, replay, query = counted(given, flush=flush)
        reached, stops, open_, times = Loops(given, is_flushed=flush).counts()
        where = f"seed {seed}: {given.text()}\n{given.rows}"
        assert [step.reached for step in found.steps] == reached, where
        assert [step.open for step in found.steps] == open_, where
        assert [step.median for step in found.steps] == times, where
        own = [Counter({(stop.what, stop.clause): stop.count for stop in step.stops}) for step in found.steps]
        assert [_by_what(item) for item in own] == [_named(item, query) for item in stops], where
        assert found.matched == len({_first(match) for match in replay.match_objects()}), where
        for item in own:
            kinds.update({what: count for (what, _), count in item.items()})
        shared += len(query.shared_types) and sum(step.reached for step in found.steps[1:])
    assert {"where", "window", "never came", "within"} <= set(kinds)
    assert shared, "records of several roles reach further steps"


def _by_what(stops: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Windows by what they are only."""
    found: Counter[tuple[str, str]] = Counter()
    for (what, clause), count in stops.items():
        found[what, "" if what in ("window", "with unique", "retain") else clause] += count
    return found


def _named(stops: Counter[tuple[str, int | None]], query: Any) -> Counter[tuple[str, str]]:
    """Conditions by their text, instead of their number."""
    found: Counter[tuple[str, str]] = Counter()
    for (what, index), count in stops.items():
        found[what, "" if index is None else Clause.of_condition(query, index).text(query)] += count
    return found


def _first(match: dict[str, Any]) -> Any:
    """A first step: a record is one in each of its keys."""
    events = [event for event in match["members"].values() if event is not None]
    return str(match["key"]), min(event["row"] for event in events)


def test_a_lie_would_be_noticed() -> None:
    given = drawn(1)
    found, _, _ = counted(given, flush=True)
    other = Loops(Given(**{**vars(given), "rows": given.rows[:2]}), is_flushed=True).counts()
    assert [step.reached for step in found.steps] != other[0]


# DuckDB: one join for each number of steps.


def sql_of(given: Given, count: int) -> str:
    names = [f"s{number}" for number in range(count)]
    tests = [f"{name}.type = '{types}'" for name, types in zip(names, given.steps, strict=False)]
    tests += [f"{left}.k = {right}.k AND {left}.id < {right}.id" for left, right in pairwise(names)]
    for name, types in zip(names, given.steps, strict=False):
        tests.append(f"{names[-1]}.moment - {name}.moment < {given.inputs[types].within}")
    for item in given.conditions:
        if item.kind == "within" and not item.steps:
            tests.append(f"{names[-1]}.moment - s0.moment < {item.number}")
        elif all(number < count for number in item.steps):
            own = [names[number] for number in item.steps]
            if item.kind == "within":
                tests.append(f"{own[1]}.moment - {own[0]}.moment < {item.number}")
            elif len(own) == 1:
                tests.append(f"{own[0]}.v > {item.number}")
            else:
                tests.append(f"{own[1]}.v > {own[0]}.v + {item.number}")
    tables = ", ".join(f"events {name}" for name in names)
    return f"SELECT count(DISTINCT s0.id) FROM {tables} WHERE {' AND '.join(tests)}"


def sql_can_say(given: Given) -> bool:
    return (
        all(len(types) == 1 and types in TYPES for types in given.steps)
        and all(item.within is not None and item.retain is None and not item.unique for item in given.inputs.values())
        and not any(given.nexts)
        and given.trailing is None
        and all(item.kind in ("where", "within") for item in given.conditions)
    )


def said_by_sql(request: pytest.FixtureRequest) -> Iterator[Given]:
    own = seeds(request)
    for seed in (*own, *(seed + len(own) for seed in own)):  # SQL can say few of them
        given = drawn(seed * 7 + 3)
        if sql_can_say(given):
            yield given


def test_steps_are_reached_as_joins_of_duckdb_say(request: pytest.FixtureRequest) -> None:
    count = 0
    for given in said_by_sql(request):
        database = connection().cursor()
        database.execute(
            "CREATE OR REPLACE TEMP TABLE events (id INTEGER, moment INTEGER, type VARCHAR, k VARCHAR, v INTEGER)"
        )
        rows = [(number, row.at, row.type, row.k, row.v) for number, row in enumerate(given.rows)]
        database.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", rows)
        found, _, _ = counted(given, flush=True)
        answers = [database.execute(sql_of(given, steps)).fetchone() for steps in range(1, len(given.steps) + 1)]
        assert [(step.reached,) for step in found.steps] == answers, given.text()
        count += 1
    assert count > 3

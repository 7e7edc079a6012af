"""What follows from the matches of one query over one stream for those of a changed query, or of a changed stream.

Each relation changes a random scenario in one way, runs both through the engine, and says what must be true of the two.
Nothing is computed a second time, so a relation needs no oracle, and its streams may be of any length.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any

import querylang
from querylang.plan.model import Plan
from runtime.engine.engine import Engine
from tests.differential.compare import DISCARDS, Observed, take
from tests.differential.patterns import random_queries
from tests.differential.streams import random_scenario
from tests.support.conditions import Constant, Name, Not, Operation
from tests.support.patterns import Clause, Wait, Where, Within, Without, opposites
from tests.support.scenario import EVENTS, SECOND, InputSetup, Row, Scenario, arrivals_of, definitions, key_of, setups

Numbered = Sequence[tuple[int, Row]]
"""Rows with their offsets, in order."""

Answer = Counter[tuple[Any, ...]]
"""Matches by the offsets of their events, key, time, and what was selected."""

LATER = 1_000_000
"""Offsets of rows that a relation adds begin here."""


@dataclass(frozen=True)
class Side:
    """A query and its stream; `is_all`: it says `find all`."""

    scenario: Scenario
    rows: Numbered
    is_all: bool = False

    def text(self) -> str:
        """The query's text."""
        lines = [*definitions(setups([self.scenario])), *self.scenario.query_lines()]
        text = "\n".join(lines) + "\n"
        return text.replace("\n  find ", "\n  find all ") if self.is_all else text

    def observed(self) -> Observed:
        """What the engine gives for the whole stream."""
        plan = plan_of(self.text())
        engine = Engine(plan)
        observed = {self.scenario.name: Observed()}
        take(plan, observed, engine.process(arrivals_of([self.scenario], plan, self.rows)))
        take(plan, observed, engine.flush())
        return observed[self.scenario.name]

    def answer(self) -> Answer:
        """Its matches."""
        return Counter(
            (match.offsets, match.key, match.time, tuple(map(repr, match.selected)))
            for match in self.observed().matches
        )


@lru_cache(maxsize=64)
def plan_of(text: str) -> Plan:
    """The plan of a text, parameters at their defaults."""
    plan = querylang.compile_text(text).plan
    return Plan(plan.events, tuple(instance for query in plan.queries for instance in querylang.instances_of(query)))


class SilentError(Exception):
    """A relation says nothing of such a scenario."""


Relation = Callable[[Scenario, random.Random], tuple[Side, Answer, Answer]]
"""Gives the changed side, what it answers as it has to be compared, and what it should be."""


def needed(holds: object) -> None:
    """Continue only if it holds."""
    if not holds:
        raise SilentError


def side_of(scenario: Scenario) -> Side:
    """As it is."""
    return Side(scenario, ordered(scenario.ordered()))


def ordered(rows: Numbered) -> Numbered:
    """In the total order."""
    return sorted(rows, key=lambda item: (item[1].at, item[1].source, item[1].partition, item[0]))


def uses(scenario: Scenario, *fields: str) -> bool:
    """Whether a condition, a filter or an aggregate reads a field."""
    text = repr((scenario.clauses, scenario.every, [(item.filters, item.unique) for item in scenario.inputs]))
    return any(f"'{field}'" in text for field in fields)


# Time


def shifted(scenario: Scenario, chooser: random.Random) -> tuple[Side, Answer, Answer]:
    """A stream that happens later has the same matches, later."""
    by = chooser.choice((1, 86_400, 1_700_000_000)) * SECOND
    rows = [
        (offset, replace(row, at=row.at + by, time=None if row.time is None else row.time + by))
        for offset, row in scenario.ordered()
    ]
    side = Side(scenario, rows)
    return (
        side,
        Counter({(*match[:2], match[2] - by, match[3]): n for match, n in side.answer().items()}),
        answer_of(scenario),
    )


def slowed(scenario: Scenario, chooser: random.Random) -> tuple[Side, Answer, Answer]:
    """Where all that takes time takes three times as long, the matches are the same."""
    needed("Moment(" not in repr(scenario.clauses))
    times = chooser.choice((2, 3))

    def longer(length: int | None) -> int | None:
        return None if length is None else length * times

    def clause(own: Clause) -> Clause:
        return replace(own, length=own.length * times) if isinstance(own, Within) else own

    def wait(own: Wait | None) -> Wait | None:
        return None if own is None else replace(own, length=own.length * times)

    inputs = tuple(replace(item, within=longer(item.within), wait=longer(item.wait)) for item in scenario.inputs)
    slow = replace(
        scenario,
        inputs=inputs,
        clauses=tuple(map(clause, scenario.clauses)),
        leading=wait(scenario.leading),
        trailing=wait(scenario.trailing),
    )
    rows = [
        (
            offset,
            replace(
                row,
                at=row.at * times,
                time=longer(row.time),
                leeway=None if row.leeway is None else tuple(length * times for length in row.leeway),
            ),
        )
        for offset, row in scenario.ordered()
    ]
    side = Side(slow, rows)
    found = Counter({(*match[:2], match[2] / times, match[3]): n for match, n in side.answer().items()})
    return side, found, answer_of(scenario)


def waited_longer(scenario: Scenario, chooser: random.Random) -> tuple[Side, Answer, Answer]:
    """Where no event was late, a longer `wait` changes no match."""
    needed(any(item.wait is not None for item in scenario.inputs))
    needed(not any(reason in ("late", "out_of_order") for _, reason, _ in observed_of(scenario).discards))
    more = chooser.choice((1, 7, 1000)) * SECOND
    inputs = tuple(replace(item, wait=None if item.wait is None else item.wait + more) for item in scenario.inputs)
    side = Side(replace(scenario, inputs=inputs), ordered(scenario.ordered()))
    return side, side.answer(), answer_of(scenario)


# Records that do not matter


def with_silent_records(scenario: Scenario, chooser: random.Random) -> tuple[Side, Answer, Answer]:
    """Records of other types and ticks between the others change no match."""
    rows = ordered(scenario.ordered())
    needed(rows)
    begin, end = rows[0][1].at, rows[-1][1].at
    moments = [chooser.choice((chooser.randint(begin, end), chooser.choice(rows)[1].at)) for _ in range(len(rows) // 2)]
    more = [
        (
            LATER + number,
            Row(at, chooser.choice(("tick", "U", "unknown", "malformed")), text="?", source=chooser.choice("azt")),
        )
        for number, at in enumerate(moments)
    ]
    side = Side(scenario, ordered([*rows, *((offset, plain(row)) for offset, row in more)]))
    return side, side.answer(), answer_of(scenario)


def plain(row: Row) -> Row:
    """A record without the text that only a malformed one has."""
    return row if row.kind in ("unknown", "malformed") else replace(row, text=None)


def without_refused(scenario: Scenario, chooser: random.Random) -> tuple[Side, Answer, Answer]:
    """Records that were refused might as well not have come."""
    refused = {offset for offset, reason, _ in observed_of(scenario).discards if reason in DISCARDS}
    needed(refused)
    gone = {offset for offset in refused if chooser.random() < 0.7}
    rows = [(offset, row) for offset, row in scenario.ordered() if offset not in gone]
    side = Side(scenario, ordered(rows))
    return side, side.answer(), answer_of(scenario)


def in_one_partition(scenario: Scenario, _: random.Random) -> tuple[Side, Answer, Answer]:
    """Sources and partitions only say in which order records of one moment stand."""
    rows = ordered(scenario.ordered())
    names = {number: offset for number, (offset, _) in enumerate(rows, 1)}
    needed(not uses(scenario, "id"))
    side = Side(scenario, [(number, replace(row, source="t", partition=0)) for number, (_, row) in enumerate(rows, 1)])
    return side, renamed(side.answer(), names), answer_of(scenario)


# Keys


def with_other_keys(scenario: Scenario, _: random.Random) -> tuple[Side, Answer, Answer]:
    """Events of other keys change nothing, and have matches of their own that are alike."""
    keys = keys_of(scenario)
    needed(not uses(scenario, "id"))
    rows = [(2 * offset, row) for offset, row in scenario.ordered()]
    copies = [
        (offset + 1, replace(row, **{name: moved(getattr(row, name)) for name in keys}))
        for offset, row in rows
        if of_events(row)
    ]
    offsets = range(2 * len(rows) + 2)
    expected = renamed(answer_of(scenario), {offset: 2 * offset for offset in offsets})
    for (members, key, at, selected), count in renamed(expected, {offset: offset + 1 for offset in offsets}).items():
        expected[members, tuple(map(moved, key)), at, selected] += count
    side = Side(scenario, ordered([*rows, *copies]))
    return side, side.answer(), expected


def one_key_alone(scenario: Scenario, chooser: random.Random) -> tuple[Side, Answer, Answer]:
    """The matches of a key are those of its events."""
    keys_of(scenario)
    rows = scenario.ordered()
    known = sorted({key_of(row, scenario.keys) for _, row in rows if of_events(row)}, key=repr)
    needed(known)
    key = chooser.choice(known)
    kept = [(offset, row) for offset, row in rows if not of_events(row) or key_of(row, scenario.keys) == key]
    side = Side(scenario, ordered(kept))
    return side, side.answer(), Counter({match: n for match, n in answer_of(scenario).items() if match[1] == key})


def reordered(scenario: Scenario, chooser: random.Random) -> tuple[Side, Answer, Answer]:
    """The order of equal moments between keys changes no match."""
    keys_of(scenario)
    needed(not uses(scenario, "id"))
    rows: list[tuple[int, Row]] = []
    for at, group in groupby(ordered(scenario.ordered()), key=lambda item: (item[1].at, of_events(item[1]))):
        own = [*group]
        by_key: dict[Any, list[tuple[int, Row]]] = {}
        for item in own:
            by_key.setdefault(key_of(item[1], scenario.keys) if at[1] else None, []).append(item)
        while any(by_key.values()):
            key = chooser.choice([key for key, left in by_key.items() if left])
            rows.append(by_key[key].pop(0))
    names = {number: offset for number, (offset, _) in enumerate(rows, 1)}
    side = Side(scenario, [(number, replace(row, source="t", partition=0)) for number, (_, row) in enumerate(rows, 1)])
    return side, renamed(side.answer(), names), answer_of(scenario)


def keys_of(scenario: Scenario) -> tuple[str, ...]:
    """The fields that are its keys, if nothing else reads them."""
    needed(scenario.keys and "h" not in scenario.keys and not uses(scenario, "k", "c"))
    return scenario.keys


def moved(value: Any) -> Any:
    """A key that no other record has."""
    return value if value is None else value + 1000 if isinstance(value, int) else f"{value}~"


def of_events(row: Row) -> bool:
    """Whether a record has a key."""
    return row.kind in EVENTS or row.kind in {f"H{event}" for event in EVENTS}


# Windows and conditions


def in_a_wider_window(scenario: Scenario, chooser: random.Random) -> tuple[Side, Answer, Answer]:
    """`find all` finds in wider windows what it has found in narrow ones, without `without` and `unique`."""
    plain_find(scenario)
    needed(not any(item.unique for item in scenario.inputs))
    more, of_all = chooser.choice((1, 5, 60)), chooser.random() < 0.5

    def wider(item: InputSetup) -> InputSetup:
        if not of_all and chooser.random() < 0.5:
            return item
        within = None if item.within is None else item.within + more * SECOND
        return replace(item, within=within, retain=None if item.retain is None else item.retain + more)

    def clause(own: Clause) -> Clause:
        return replace(own, length=own.length + more * SECOND) if isinstance(own, Within) else own

    wide = replace(scenario, inputs=tuple(map(wider, scenario.inputs)), clauses=tuple(map(clause, scenario.clauses)))
    side = Side(wide, ordered(scenario.ordered()), is_all=True)
    narrow = Side(scenario, side.rows, is_all=True).answer()
    needed(narrow.total() < 500)
    return side, side.answer() & narrow, narrow


def divided(scenario: Scenario, chooser: random.Random) -> tuple[Side, Answer, Answer]:
    """What `find all` finds with a condition and with its opposite is all that it finds, where neither is null."""
    plain_find(scenario)
    optional = {name for sides in opposites(scenario.pattern) for part in sides for name in part}
    names = [name for name in scenario.names if name not in optional]
    needed(names)
    needed(all(row.kind not in EVENTS or None not in (row.v, row.s, row.f, row.g) for row in scenario.rows))
    field, kind, low = chooser.choice((("v", "integer", 1), ("s", "string", "a"), ("f", "float", 0.5)))
    left = Name(chooser.choice(names), field, kind)
    right = chooser.choice((Constant(low), Name(chooser.choice(names), field, kind)))
    condition = Operation(chooser.choice(("=", "!=", "<", "<=", ">", ">=")), left, right)

    def under(node: Any) -> Side:
        clauses = (*scenario.clauses, Where(node))
        return Side(replace(scenario, clauses=clauses), ordered(scenario.ordered()), is_all=True)

    whole = Side(scenario, ordered(scenario.ordered()), is_all=True).answer()
    needed(0 < whole.total() < 500)
    side = under(condition)
    return side, side.answer() + under(Not(condition)).answer(), whole


def plain_find(scenario: Scenario) -> None:
    """Only where a query may say `find all`, and each candidate stands for itself."""
    needed(scenario.every is None and not scenario.parameters)
    needed(not any(isinstance(own, Without) for own in scenario.clauses))
    needed(scenario.trailing is None and scenario.leading is None)


RELATIONS: Mapping[str, Relation] = {
    function.__name__: function
    for function in (
        *(shifted, slowed, waited_longer, with_silent_records, without_refused, in_one_partition),
        *(with_other_keys, one_key_alone, reordered, in_a_wider_window, divided),
    )
}


def renamed(answer: Answer, names: Mapping[int, int]) -> Answer:
    """The same with other offsets."""
    found: Answer = Counter()
    for (offsets, *rest), count in answer.items():
        found[(tuple(None if offset is None else names[offset] for offset in offsets), *rest)] += count
    return found


@lru_cache(maxsize=8)
def observed_of(scenario: Scenario) -> Observed:
    """What the engine gives for a scenario as it is."""
    return side_of(scenario).observed()


def answer_of(scenario: Scenario) -> Answer:
    """Its matches."""
    return Counter(
        (match.offsets, match.key, match.time, tuple(map(repr, match.selected)))
        for match in observed_of(scenario).matches
    )


def scenario_of(seed: int) -> Scenario:
    """One of those that other tests draw, too; every third is a longer stream of more keys."""
    match seed % 3:
        case 0:
            return random_scenario(seed)
        case 1:
            return random_queries(seed, 1)[0]
    return random_scenario(seed, length=random.Random(seed).choice((100, 200, 400)), spread=5)


@dataclass(frozen=True)
class Said:
    """What a relation says.

    has_matches: there was something to compare
    wrong: what is not as it has to be
    pairs: of queries that were compared
    """

    has_matches: bool
    wrong: str = ""
    pairs: int = 1


def tried(seed: int, name: str) -> Said | None:
    """What a relation says of a scenario; None = nothing."""
    scenario = scenario_of(seed)
    try:
        side, found, expected = RELATIONS[name](scenario, random.Random(f"{name} {seed}"))
    except SilentError:
        return None
    if found == expected:
        return Said(bool(expected))
    few, many = expected - found, found - expected
    lines = [f"seed {seed}, {name}: {few.total()} missing, {many.total()} too many"]
    lines += [*map(str, [*few][:3]), *map(str, [*many][:3]), side_of(scenario).text(), "changed to", side.text()]
    lines += [f"  {offset:7} {row}" for offset, row in side.rows] if len(side.rows) < 120 else []
    return Said(bool(expected), "\n".join(lines))

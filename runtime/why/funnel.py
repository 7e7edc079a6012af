"""How far first steps come in a pattern: which steps they reach, and why the others stop there.

What is counted, in terms of the events that the engine has released to the matcher (so filters,
late records and keys have been decided):

- A *partial match* of i steps: events of one key for the first i, in order of the pattern, each
  later than the one before in total order. When the last of them comes, all are in their windows
  (`within`, `retain`, `with unique`), and each condition holds that mentions no later step. A
  `within` or `without` over the whole pattern is asked of each one, from its first to its last
  event. A condition that reaches into a trailing wait is asked at that wait, which is a step of
  its own: the partial match has to outlive it.
- A first step *reaches* step i if a partial match of i steps begins with it. It stops at the last
  one that it reaches.
- Why it stops: of all of its partial matches to there, and all later events of the key that could
  be the next step, the one that fails for the latest reason in this order: window, `within` and
  `wait`, order (`=>`), `where`, `without`; conditions in the order of the query. No such event:
  never came.
- *Open*: it has stopped, but when the last event of all keys came it was still within the `within`
  of its input and of the pattern (there has to be one of these), or the trailing wait is not over.
  Of a record that could be a first step by several roles the longest `within` counts.
- The time to a step is that of the earliest one to the last step reached: the earliest second
  step with which it is reached, then the earliest third, and so on.
- *Matched*: first steps that are members of matches that were given out. They may be fewer: a match
  has the most recent first step, and `after match skip` and `at most` leave matches out. A `find
  all` gives each of them, `find every` no members: there it is not known.

One event may be in those of several first steps. A record with several keys, by its roles, is an
event in each of them. Patterns with repeats, optional steps or `and`
have no steps in one order and are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import pyarrow as pa

from querylang.dataclass import dataclass, field
from querylang.errors import counted
from querylang.plan.model import QueryPlan
from querylang.plan.text import duration_text
from runtime.matching.reference import ReferenceMatcher
from runtime.why.all_keys import all_keys
from runtime.why.clauses import Clause, What
from runtime.why.partial_matches import MOST_VISITS, WAITS, PartialMatches, PatternStep, Way, steps_of
from runtime.why.reasons import SECOND
from runtime.why.records import PLACE, Table


@dataclass(frozen=True, slots=True)
class Stop:
    """Why first steps stopped. `clause`: as it is written; empty = there is not one."""

    what: str
    clause: str
    count: int


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """A step of the pattern.

    name: of its event; several of an `or`
    event: its type
    reached: how many first steps have reached it
    median: of the time from the step before, in seconds; None = the first step, or nothing came
    stops: why first steps went no further, the most frequent first
    open: how many may still go further
    """

    name: str
    event: str
    reached: int
    median: float | None
    stops: tuple[Stop, ...]
    open: int


@dataclass(frozen=True, slots=True)
class Funnel:
    """How far the first steps of a query came.

    matched: how many first steps are in matches; None = not known
    matches: how many matches there are
    remarks: what was not looked at
    """

    query: str
    instance: str
    steps: tuple[FunnelStep, ...]
    matched: int | None
    matches: int
    remarks: tuple[str, ...] = field(default=())


def funnel_of(table: Table, query: QueryPlan) -> Funnel:
    """The funnel of a query. Raises InputError for a pattern without steps in one order."""
    steps, ending = steps_of(query), table.ending
    found = all_keys(table.plan, query, table.records, ending)
    matcher = ReferenceMatcher(table.plan, query)
    partial = PartialMatches(query, steps, found, matcher, flush=ending.flush and ending.until is None)
    counts = _Counts(query, steps)
    last = max(partial.times, default=0)
    for key in found.keys:
        for first, way in partial.of_key(key):
            limit = partial.limit_of(first)
            is_open = way.rank == WAITS or (
                bool(way.steps)
                and _has_events(steps, way.steps)
                and limit is not None
                and last - partial.times[first] < limit
            )
            counts.add(
                way, [partial.times[position] for position in way.positions], is_open=is_open, is_cut=partial.is_cut
            )
    tables = [results.matches[query.title] for results in found.results if query.title in results.matches]
    return counts.funnel(tables)


def _has_events(steps: Sequence[PatternStep], reached: int) -> bool:
    """Whether the step behind these is one of an event."""
    return reached < len(steps) and bool(steps[reached].transitions)


class _Counts:
    """Adds up what became of first steps."""

    def __init__(self, query: QueryPlan, steps: Sequence[PatternStep]) -> None:
        self._query, self._steps = query, steps
        self._reached, self._open = [0] * len(steps), [0] * len(steps)
        self._stops: list[Counter[Clause]] = [Counter() for _ in steps]
        self._between: list[list[int]] = [[] for _ in steps]
        self._cut = 0

    def add(self, way: Way, times: Sequence[int], *, is_open: bool, is_cut: bool) -> None:
        """Adds a first step. `times`: of its earliest partial match, µs."""
        self._cut += is_cut
        if not way.steps:
            return
        for number in range(way.steps):
            self._reached[number] += 1
        for number, (before, after) in enumerate(pairwise(times), 1):
            if self._steps[number].transitions:
                self._between[number].append(after - before)
        if is_open:
            self._open[way.steps - 1] += 1
        elif way.steps < len(self._steps):
            self._stops[way.steps - 1][way.clause] += 1

    def funnel(self, matches: Sequence[pa.Table]) -> Funnel:
        """The whole. `matches`: those that were given out."""
        query = self._query
        remarks = []
        if self._cut:
            remarks.append(
                f"of {counted(self._cut, 'first step')} only {MOST_VISITS:,} later events were looked at: "
                "they may have come further"
            )
        return Funnel(
            query=query.name,
            instance=query.instance,
            steps=tuple(self._step(number) for number in range(len(self._steps))),
            matched=None if query.every is not None else len(_first_members(query, self._steps[0], matches)),
            matches=sum(map(len, matches)),
            remarks=tuple(remarks),
        )

    def _step(self, number: int) -> FunnelStep:
        query, step, between = self._query, self._steps[number], self._between[number]
        names = dict.fromkeys(query.terms[term].name for item in step.transitions for term in item.binds)
        types = dict.fromkeys(query.inputs[item.input].name for item in step.transitions)
        stops = [Stop(str(clause.what), _text(clause, query), count) for clause, count in self._stops[number].items()]
        wait = "" if query.trailing is None else f"wait({duration_text(query.trailing.duration)})"
        return FunnelStep(
            name=" or ".join(names) or wait,
            event=" or ".join(types),
            reached=self._reached[number],
            median=median(between) / SECOND if between else None,
            stops=tuple(sorted(stops, key=lambda item: (-item.count, item.what, item.clause))),
            open=self._open[number],
        )


def _text(clause: Clause, query: QueryPlan) -> str:
    return "" if clause.what in (What.NEVER_CAME, What.ORDER) else clause.text(query)


def _first_members(query: QueryPlan, step: PatternStep, matches: Sequence[pa.Table]) -> set[tuple[object, ...]]:
    """The coordinates of first steps of matches, and their keys where they may have several."""
    names = {query.terms[term].name for item in step.transitions for term in item.binds}
    found = set[tuple[object, ...]]()
    for table in matches:
        members = table.column("members").combine_chunks()
        for name in names if len(table) else ():
            column = members.field(name)
            event = column.filter(column.is_valid())
            columns = [event.field(part).to_pylist() for part in PLACE]
            if query.shared_types:  # a record may be a first step in several keys
                keys = table.column("key").filter(column.is_valid()).to_pylist()
                columns.append([str(key) for key in keys])
            found.update(zip(*columns, strict=True))
    return found

"""Makes a failing scenario smaller as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.support.conditions import Node, Not, Operation, names_in
from tests.support.patterns import Chain, Clause, Leaf, Pattern, Where, Without, leaves_of, mentioned, parts_of
from tests.support.scenario import EVENTS, Row, Scenario

BOOLEAN = {"and", "or", "xor"}


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool]) -> Scenario:
    """The smallest scenario that is found by leaving out one thing after the other."""
    found = True
    while found:
        found = False
        for simpler in simplifications(scenario):
            if fails(simpler):
                scenario, found = simpler, True
                break
    return scenario


def simplifications(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios with less in them, the boldest first."""
    size = len(scenario.rows)
    width = size // 2
    while width:
        for start in range(0, size, width):
            yield replace(scenario, rows=scenario.rows[:start] + scenario.rows[start + width :])
        width //= 2
    yield from _simpler_clauses(scenario)
    yield from _simpler_every(scenario)
    yield from (replace(scenario, pattern=pattern) for pattern in smaller(scenario.pattern) if fits(scenario, pattern))
    yield from _without_waits(scenario)
    if scenario.parameters:
        yield replace(scenario, parameters=False)
    if scenario.prints:
        yield replace(scenario, prints=False)
    for index in range(len(scenario.keys)):
        yield replace(scenario, keys=scenario.keys[:index] + scenario.keys[index + 1 :])
    yield from _simpler_inputs(scenario)
    yield from _simpler_rows(scenario)


def _simpler_clauses(scenario: Scenario) -> Iterator[Scenario]:
    for index, clause in enumerate(scenario.clauses):
        before, after = scenario.clauses[:index], scenario.clauses[index + 1 :]
        yield replace(scenario, clauses=before + after)
        yield from (replace(scenario, clauses=(*before, simpler, *after)) for simpler in simpler_clauses(clause))


def simpler_clauses(clause: Clause) -> Iterator[Clause]:
    """The clause with less in it."""
    match clause:
        case Where(condition):
            yield from (Where(part) for part in boolean_parts(condition))
        case Without(_, _, condition, between):
            if between:
                yield replace(clause, between=())
            if condition is not None:
                yield replace(clause, condition=None)
                yield from (replace(clause, condition=part) for part in boolean_parts(condition))


def boolean_parts(node: Node) -> tuple[Node, ...]:
    """The conditions that a condition is made of."""
    match node:
        case Operation(sign, left, right) if sign in BOOLEAN:
            return (left, right)
        case Not(operand):
            return (operand,)
    return ()


def _simpler_every(scenario: Scenario) -> Iterator[Scenario]:
    every = scenario.every
    if every is None:
        return
    for index in range(len(every.having)):
        yield replace(scenario, every=replace(every, having=every.having[:index] + every.having[index + 1 :]))
    if len(every.selects) > 1 and not every.having:
        for index in range(len(every.selects)):
            yield replace(scenario, every=replace(every, selects=every.selects[:index] + every.selects[index + 1 :]))


def smaller(pattern: Pattern) -> Iterator[Pattern]:
    """The pattern with a part left out."""
    parts = parts_of(pattern)
    yield from parts
    if isinstance(pattern, Chain) and len(parts) > 2:
        yield from (Chain(parts[:index] + parts[index + 1 :]) for index in range(len(parts)))
    for index, part in enumerate(parts):
        for simpler in smaller(part):
            inner = (*parts[:index], simpler, *parts[index + 1 :])
            yield Chain(inner) if isinstance(pattern, Chain) else type(pattern)(*inner)  # type: ignore[call-arg]


def fits(scenario: Scenario, pattern: Pattern) -> bool:
    """Whether all names that the query mentions are still there."""
    gone = set(scenario.names) - {leaf.name for leaf in leaves_of(pattern)}
    used = {name for clause in scenario.clauses for name in mentioned(clause)}
    if scenario.every is not None:
        nodes = [*(node for _, node in scenario.every.selects), *scenario.every.having]
        used |= {name for node in nodes for name in names_in(node)}
    return not gone & used


def _without_waits(scenario: Scenario) -> Iterator[Scenario]:
    used = {name for clause in scenario.clauses for name in mentioned(clause)}
    if scenario.leading is not None and scenario.leading.name not in used:
        yield replace(scenario, leading=None)
    if scenario.trailing is not None and scenario.trailing.name not in used:
        yield replace(scenario, trailing=None)


def _simpler_inputs(scenario: Scenario) -> Iterator[Scenario]:
    needed = {leaf.event for leaf in scenario.leaves if isinstance(leaf, Leaf)}
    needed |= {clause.event for clause in scenario.clauses if isinstance(clause, Without)}
    for index, item in enumerate(scenario.inputs):
        before, after = scenario.inputs[:index], scenario.inputs[index + 1 :]
        if item.event not in needed and len(scenario.inputs) > 1:
            yield replace(scenario, inputs=before + after)
        for simpler in (
            replace(item, filters=()),
            replace(item, unique=()),
            replace(item, retain=None) if item.within is not None else item,
            replace(item, within=None) if item.retain is not None else item,
            replace(item, out_of_order=False),
            replace(item, wait=None, heartbeat=None, time="column"),
            replace(item, time="column"),
            replace(item, heartbeat=None) if item.time != "field" else item,
        ):
            if simpler != item:
                yield replace(scenario, inputs=(*before, simpler, *after))


def _simpler_rows(scenario: Scenario) -> Iterator[Scenario]:
    for index, row in enumerate(scenario.rows):
        if row.kind not in EVENTS:
            continue
        simplest = Row(row.at, row.kind, row.time, leeway=row.leeway, text=row.text)
        named = {name: getattr(row, name) for name in scenario.keys if name != "h"}
        for simpler in (replace(simplest, k=0, c="x", v=0, f=0.0, s="", g=False), replace(row, source="t")):
            kept = replace(simpler, **named)
            if kept != row:
                yield replace(scenario, rows=(*scenario.rows[:index], kept, *scenario.rows[index + 1 :]))

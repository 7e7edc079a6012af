"""Makes a failing scenario smaller as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.support.scenario import EVENTS, Row, Scenario


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
    for index in range(len(scenario.conditions)):
        yield replace(scenario, conditions=scenario.conditions[:index] + scenario.conditions[index + 1 :])
    if not scenario.conditions and len(scenario.pattern) > 1:
        yield from (replace(scenario, pattern=pattern) for pattern in (scenario.pattern[1:], scenario.pattern[:-1]))
    if scenario.within is not None:
        yield replace(scenario, within=None)
    if scenario.prints:
        yield replace(scenario, prints=False)
    for index in range(len(scenario.keys)):
        yield replace(scenario, keys=scenario.keys[:index] + scenario.keys[index + 1 :])
    yield from _simpler_inputs(scenario)
    yield from _simpler_rows(scenario)


def _simpler_inputs(scenario: Scenario) -> Iterator[Scenario]:
    for index, item in enumerate(scenario.inputs):
        before, after = scenario.inputs[:index], scenario.inputs[index + 1 :]
        if item.event not in scenario.pattern and len(scenario.inputs) > 1:
            yield replace(scenario, inputs=before + after)
        for simpler in (
            replace(item, least=None),
            replace(item, retain=None) if item.within is not None else item,
            replace(item, out_of_order=False),
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
        named = {name: getattr(row, name) for name in scenario.keys}
        for simpler in (replace(simplest, k=0, c="x", v=0, f=0.0, s="", g=False), replace(row, source="t")):
            kept = replace(simpler, **named)
            if kept != row:
                yield replace(scenario, rows=(*scenario.rows[:index], kept, *scenario.rows[index + 1 :]))

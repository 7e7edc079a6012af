"""Binds the ordering policies of sources into a plan: sets `Input.policy` and `Input.sources`.

Policies that do not fit the queries raise `OrderingError`. A bound plan is all that an executor
needs. Text is read in `runtime.policies.policy_text`. Needs only the language and the standard
library.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from querylang.errors import nearest
from querylang.plan.model import EventType, Input, Plan, QueryPlan, TimePolicy
from querylang.plan.value_types import SIMPLE
from runtime.policies.policy_text import GivenOrderings, Ordering, Orderings, parse_ordering, parse_orderings
from runtime.policies.presets import OrderingError, apama, streaminsight

__all__ = [
    "GivenOrderings",
    "Ordering",
    "OrderingError",
    "Orderings",
    "SourceOrdering",
    "for_reading",
    "parse_ordering",
    "parse_orderings",
    "policy_of",
    "with_ordering",
]

Found = tuple[str | None, str]
"""A source (None = all) and a mistake in its policy."""


@dataclass(frozen=True, slots=True)
class SourceOrdering:
    """What was chosen for one source.

    source: its name; None = every source
    policy: how its records are ordered; None = as the queries say
    events: the event types that it can bring; None = any
    """

    source: str | None
    policy: TimePolicy | None
    events: tuple[str, ...] | None = None

    def brings(self, event: str) -> bool:
        """Whether the source can bring events of that type."""
        return self.events is None or event in self.events


def with_ordering(plan: Plan, orderings: Sequence[SourceOrdering], unseen: Collection[str] = ()) -> Plan:
    """The plan in which each input has the policy and the names of the sources of its events.

    `unseen`: event types whose fields are only known from data. Raises OrderingError with all
    mistakes, by source.
    """
    found: list[Found] = []
    queries = []
    for query in plan.queries:
        inputs = []
        for item in query.inputs:
            chosen = [ordering for ordering in orderings if ordering.brings(item.event)]
            found += _misfits(plan, query, item, chosen, unseen)
            inputs.append(_with_policy(item, chosen) if chosen else item)
        queries.append(replace(query, inputs=tuple(inputs)))
        found += [(None, f"query '{query.title}': {cycle}") for cycle in _import_cycles(inputs)]
    found += _without_effect(plan, orderings)
    if found:
        raise OrderingError(tuple(dict.fromkeys(found)))
    return replace(plan, queries=tuple(queries))


def policy_of(orderings: Orderings, source: str) -> TimePolicy | None:
    """The policy of a source: the one for its name, else the one for all sources."""
    return orderings.get(source, orderings.get(None))


def for_reading(plan: Plan, policy: TimePolicy | None) -> Plan:
    """The plan as if all events came from one source with this policy: to see its columns."""
    queries = [
        replace(query, inputs=tuple(replace(item, policy=policy) for item in query.inputs)) for query in plan.queries
    ]
    return replace(plan, queries=tuple(queries))


def _with_policy(item: Input, chosen: Sequence[SourceOrdering]) -> Input:
    policy = chosen[0].policy
    if policy is not None and policy.imports == item.event:
        policy = _of_imported(policy)
    names = (ordering.source for ordering in chosen if ordering.source is not None)
    return replace(item, policy=policy, sources=tuple(dict.fromkeys(names)))


def _of_imported(policy: TimePolicy) -> TimePolicy:
    """The policy of a type whose time others import: it advances with each event, without delay."""
    own = streaminsight()
    return replace(policy, imports=None, every=own.every, disorder=own.disorder)


def _import_cycles(inputs: Sequence[Input]) -> Iterator[str]:
    """Cycles of types that each import the time of the next one."""
    imports = {item.event: item.policy.imports for item in inputs if item.policy is not None}
    for start in imports:
        names = [start]
        while (following := imports.get(names[-1])) is not None and following not in names:
            names.append(following)
        if following == start and start == min(names):
            yield f"'import' forms a cycle, so time never advances: {', '.join([*names, start])}"


def _misfits(
    plan: Plan, query: QueryPlan, item: Input, chosen: Sequence[SourceOrdering], unseen: Collection[str]
) -> Iterator[Found]:
    place = f"query '{query.title}', input '{item.event}'"
    for ordering in chosen[1:]:
        if _effect(ordering.policy) != _effect(chosen[0].policy):
            sources = f"the sources '{chosen[0].source}' and '{ordering.source}'"
            yield ordering.source, f"{place}: {sources} can both bring this type, and have different orderings"
    for ordering in chosen:
        if ordering.policy is not None:
            for reason in _reasons(plan, item, ordering.policy, unseen):
                yield ordering.source, f"{place}: {reason}"


def _without_effect(plan: Plan, orderings: Sequence[SourceOrdering]) -> Iterator[Found]:
    """A limit for early events that has no effect on any input of its source."""
    inputs = [item for query in plan.queries for item in query.inputs]
    reason = "'early' compares source times with arrival, but no input of the source has `wait`: events have their arrival time"
    for ordering in orderings:
        policy, brought = ordering.policy, [item for item in inputs if ordering.brings(item.event)]
        is_limited = policy is not None and policy.is_per_key and policy.early is not None
        if is_limited and brought and all(item.wait is None for item in brought):
            yield ordering.source, reason


def _effect(policy: TimePolicy | None) -> TimePolicy:
    return apama() if policy is None else policy


def _reasons(plan: Plan, item: Input, policy: TimePolicy, unseen: Collection[str]) -> Iterator[str]:
    """The reasons why an input cannot have a policy."""
    if not policy.is_per_key:
        for clause in _own_order(item):
            yield (
                f"{clause} says how events are put in order, and so does the policy '{policy.name}' of its source;"
                f" only 'apama' can be combined with it"
            )
    event = plan.event(item.event)
    if not (item.event in unseen and not event.fields):
        yield from _missing_fields(event, policy)
    if policy.imports is not None:
        yield from _import_misfits(plan, policy.imports)


def _own_order(item: Input) -> Iterator[str]:
    if item.wait is not None:
        yield "`wait`"
    if item.heartbeat is not None:
        yield f"the heartbeat '{item.heartbeat.event}'"
    if item.out_of_order:
        yield "`@OutOfOrder`"


def _missing_fields(event: EventType, policy: TimePolicy) -> Iterator[str]:
    types = {field.name: field.type for field in event.fields}
    for name in policy.over:
        if name not in types:
            yield f"'over={name}', but the event type has {_named('field', types)}{_near(name, types)}"
        elif types[name] not in SIMPLE:
            yield f"'over={name}', but the field is a {types[name]}: it must be one that can be a key"


def _import_misfits(plan: Plan, imports: str) -> Iterator[str]:
    events = [event.name for event in plan.events]
    if imports not in events:
        yield f"'import={imports}', but the queries know {_named('event type', events)}{_near(imports, events)}"


def _near(name: str, names: Collection[str]) -> str:
    meant = nearest(name, names)
    return f"; did you mean '{meant}'?" if meant is not None else ""


def _named(what: str, names: Collection[str]) -> str:
    if not names:
        return f"no {what}"
    return f"the {what}{'' if len(names) == 1 else 's'} {', '.join(names)}"

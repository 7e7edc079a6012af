"""Ordering policies of sources, bound into a plan: each input is told how its records are put in order.

Takes a plan and what each source was given; gives the plan with `Input.policy` and `Input.sources` set, or raises
`OrderingError` for what does not fit the queries. A plan so bound is all that an executor needs. Text is read in
`runtime.policies.policy_text`. Needs the language and the standard library only.
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
"""A source and what is wrong with its policy."""


@dataclass(frozen=True, slots=True)
class SourceOrdering:
    """What was chosen for one source (None: for every source): a policy (None: none) and the event types that the source
    can bring (None: any)."""

    source: str | None
    policy: TimePolicy | None
    events: tuple[str, ...] | None = None

    def brings(self, event: str) -> bool:
        """Whether events of that type can come from it."""
        return self.events is None or event in self.events


def with_ordering(plan: Plan, orderings: Sequence[SourceOrdering], unseen: Collection[str] = ()) -> Plan:
    """The plan in which every input has the policy and the names of the sources that can bring its events.

    `unseen`: event types whose fields only the data will tell. Raises OrderingError with every mistake, by source.
    """
    found: list[Found] = []
    queries = []
    for query in plan.queries:
        inputs = []
        for item in query.inputs:
            chosen = [ordering for ordering in orderings if ordering.brings(item.event)]
            found += _misfits(plan, query, item, chosen, unseen)
            inputs.append(_bound(item, chosen) if chosen else item)
        queries.append(replace(query, inputs=tuple(inputs)))
        found += [(None, f"query '{query.title}': {circle}") for circle in _circles(inputs)]
    found += _without_effect(plan, orderings)
    if found:
        raise OrderingError(tuple(dict.fromkeys(found)))
    return replace(plan, queries=tuple(queries))


def policy_of(orderings: Orderings, source: str) -> TimePolicy | None:
    """What was chosen for a source: by its name, else for all."""
    return orderings.get(source, orderings.get(None))


def for_reading(plan: Plan, policy: TimePolicy | None) -> Plan:
    """The plan as if all events came from a source with this policy: it says which columns a table of that source needs."""
    queries = [
        replace(query, inputs=tuple(replace(item, policy=policy) for item in query.inputs)) for query in plan.queries
    ]
    return replace(plan, queries=tuple(queries))


def _bound(item: Input, chosen: Sequence[SourceOrdering]) -> Input:
    policy = chosen[0].policy
    if policy is not None and policy.imports == item.event:
        policy = _of_imported(policy)
    names = (ordering.source for ordering in chosen if ordering.source is not None)
    return replace(item, policy=policy, sources=tuple(dict.fromkeys(names)))


def _of_imported(policy: TimePolicy) -> TimePolicy:
    """Where others take the time of a type, the type itself makes its own: after each event, without delay."""
    own = streaminsight()
    return replace(policy, imports=None, every=own.every, disorder=own.disorder)


def _circles(inputs: Sequence[Input]) -> Iterator[str]:
    """Types of which each waits for the next one's time, and the last for the first's."""
    imports = {item.event: item.policy.imports for item in inputs if item.policy is not None}
    for start in imports:
        names = [start]
        while (following := imports.get(names[-1])) is not None and following not in names:
            names.append(following)
        if following == start and start == min(names):
            yield f"'import' goes in a circle, and no time ever comes: {', '.join([*names, start])}"


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
    """A limit for early events that no input of a source can heed."""
    inputs = [item for query in plan.queries for item in query.inputs]
    reason = "'early' compares source times with arrival, but no input that the source brings has `wait`: its events happen when they arrive"
    for ordering in orderings:
        policy, brought = ordering.policy, [item for item in inputs if ordering.brings(item.event)]
        is_limited = policy is not None and policy.is_per_key and policy.early is not None
        if is_limited and brought and all(item.wait is None for item in brought):
            yield ordering.source, reason


def _effect(policy: TimePolicy | None) -> TimePolicy:
    return apama() if policy is None else policy


def _reasons(plan: Plan, item: Input, policy: TimePolicy, unseen: Collection[str]) -> Iterator[str]:
    """Why an input cannot have a policy."""
    if not policy.is_per_key:
        for clause in _own_order(item):
            yield (
                f"{clause} says how events are put in order, and so does the policy '{policy.name}' of its source;"
                f" only 'apama' goes with it"
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

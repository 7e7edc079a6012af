"""The settings of a shared clock, as numbers, from the policy that its inputs have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace

from querylang.plan.model import Plan, QueryPlan, TimePolicy
from runtime.admission.bound_history import ClockLag
from runtime.admission.rules import Action, Settings
from runtime.admission.shared_clock_kernel import Rules
from runtime.instants import NEVER, NO_TIME
from runtime.policies.per_input import key_places

NEW_PARTITION_LAG = 5_000_000
"""The assumed lag of a source partition without records behind the clock, µs (docs/time.md)."""


@dataclass(frozen=True, slots=True)
class ClockSettings:
    """What a shared clock is configured with.

    inputs: the indexes of its inputs in the query
    events: the event types of these inputs
    sources: the sources that can bring them; empty = not known
    policy: the policy of all of these inputs
    places: where the fields of its substreams are among the keys of the query; empty = keys share
        the timelines
    rules: for its timelines
    lag: how far its watermarks are behind the clock
    imported: the event type whose bound it takes over; None = none
    imported_kind: the index of that type in the plan; -1 = none
    is_final: whether the end of the input is a bound beyond all times
    start: the bound of all timelines before the first record, µs; NO_TIME = none
    """

    inputs: tuple[int, ...]
    events: tuple[str, ...]
    sources: tuple[str, ...]
    policy: TimePolicy
    places: tuple[int, ...]
    rules: Rules
    lag: ClockLag
    imported: str | None
    imported_kind: int
    is_final: bool
    start: int

    @property
    def has_idle(self) -> bool:
        """Whether timelines can be idle."""
        return min(self.rules.own.idle, self.rules.imported.idle) < NEVER


def clock_settings(plan: Plan, query: QueryPlan, inputs: tuple[int, ...]) -> ClockSettings:
    """The settings of the clock that these inputs of a query share."""
    policy = query.inputs[inputs[0]].policy
    assert policy is not None, "the inputs of a clock have a policy"
    own = imported_settings = _settings(policy)
    imported, imported_kind, is_final = None, -1, policy.is_final
    if policy.imports is not None:
        imported, imported_settings, ends = _origin(query, policy.imports, policy)
        imported_kind = [event.name for event in plan.events].index(imported)
        is_final = policy.is_final or ends
    places = key_places(query, inputs) or ()
    has_start = policy.start is not None and policy.max_delay is not None
    return ClockSettings(
        inputs=inputs,
        events=tuple(query.inputs[index].event for index in inputs),
        sources=tuple(dict.fromkeys(name for index in inputs for name in query.inputs[index].sources)),
        policy=policy,
        places=places,
        rules=Rules(own, imported_settings, imported is not None),
        lag=ClockLag(own.late, 0 if places or own.late >= NEVER else NEW_PARTITION_LAG, int(policy.is_strict)),
        imported=imported,
        imported_kind=imported_kind,
        is_final=is_final,
        start=(policy.start or 0) - (policy.max_delay or 0) if has_start else NO_TIME,
    )


def _origin(query: QueryPlan, imports: str, policy: TimePolicy) -> tuple[str, Settings, bool]:
    """The event type whose bound is imported in the end, its settings, and whether it is final.

    Imports are followed to the end of their chain. A type that is not an input of the query
    advances with each of its events.
    """
    policies = {item.event: item.policy for item in query.inputs}
    while (own := policies.get(imports)) is not None and own.imports is not None:
        imports = own.imports
    if own is not None:
        return imports, _settings(own), own.is_final
    return imports, _settings(replace(policy, every=1, every_span=None, disorder=0, idle=None)), False


def _settings(policy: TimePolicy) -> Settings:
    def or_never(length: int | None) -> int:
        return NEVER if length is None else length

    return Settings(
        early=or_never(policy.early),
        late=or_never(policy.max_delay),
        disorder=policy.disorder,
        every=policy.every or 0,
        span=policy.every_span or 0,
        idle=or_never(policy.idle),
        action=Action[policy.action.upper()],
    )

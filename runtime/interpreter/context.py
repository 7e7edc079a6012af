"""The context of an evaluation: events, keys, selects and variables in scope, and limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from querylang.plan.expression import Aggregate
from querylang.plan.model import Action, EventType, Plan, QueryPlan
from runtime.interpreter.values import Event, LimitError, Value, World

MOST_STEPS = 1_000_000
"""Iterations of loops and calls of actions that one match, or one condition, may run."""

MOST_BYTES = 200_000_000
"""Bytes that one match, or one condition, may make or work on (`runtime.interpreter.work`)."""

DEEPEST_CALLS = 500
"""How deep calls of actions may be nested."""


class PlanWorld:
    """The `World` of a plan, with the actions and the rule for nulls of one of its queries.

    Without a query it is the earlier rule if any query has that.
    """

    def __init__(self, plan: Plan, query: QueryPlan | None = None) -> None:
        self._queries = plan.queries if query is None else (query,)
        known = _known(plan.events)
        self._events, actions = known.types, known.actions
        self._actions = (
            actions if query is None else actions | {(None, action.name): action for action in query.actions}
        )

    @property
    def nulls_fail(self) -> bool:
        """Whether a null that is used is a failure."""
        return any(query.nulls_fail for query in self._queries)

    def event_type(self, name: str) -> EventType:
        """The event type of that name; KeyError if the plan has none."""
        return self._events[name]

    def action(self, event: str | None, name: str) -> Action:
        """An action of an event type, or (None) of the query; KeyError if there is none."""
        return self._actions[event, name]


class _Known(NamedTuple):
    events: tuple[EventType, ...]
    types: dict[str, EventType]
    actions: dict[tuple[str | None, str], Action]
    numbers: dict[str, int]


_KNOWN: dict[int, _Known] = {}
"""By the identity of a plan's event types: they are asked for many times per batch."""

_MOST_KNOWN = 64


def _known(events: tuple[EventType, ...]) -> _Known:
    known = _KNOWN.get(id(events))
    if known is None or known.events is not events:
        types = {event.name: event for event in events}
        actions: dict[tuple[str | None, str], Action] = {
            (event.name, action.name): action for event in events for action in event.actions
        }
        known = _Known(events, types, actions, {event.name: number for number, event in enumerate(events)})
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[id(events)] = known
    return known


def event_numbers(plan: Plan) -> Mapping[str, int]:
    """The places of the plan's event types, by name."""
    return _known(plan.events).numbers


EMPTY_WORLD: World = PlanWorld(Plan((), ()))
"""A world without event types and actions."""


@dataclass(slots=True)
class Budget:
    """The steps and bytes that are left, shared by everything that is evaluated for one match.

    Time and memory of the process are not looked at: a limit is reached at the same place on every
    machine, however the stream is cut.
    """

    steps: int = MOST_STEPS
    bytes: int = MOST_BYTES

    def step(self) -> None:
        """Use one step; LimitError if none is left."""
        if self.steps <= 0:
            raise LimitError(f"more than {MOST_STEPS:,} steps of loops and calls")
        self.steps -= 1

    def spend(self, size: int) -> None:
        """Use so many bytes; LimitError if not so many are left."""
        self.bytes -= size
        if self.bytes < 0:
            raise LimitError(f"more than {MOST_BYTES:,} bytes of texts, sequences, outputs and operations")


@dataclass(frozen=True, slots=True)
class Output:
    """What a statement puts out.

    kind: `print`, `log`, `send`, `emit` or `route`
    text: what is printed or logged, or the event as text
    channel: where the event is sent; the level of a `log`
    event: the event that is sent
    """

    kind: str
    text: str
    channel: str | None = None
    event: Event | None = None


def no_actions(action: Action, _arguments: Sequence[Value], _context: Context) -> Value:
    """The `invoke` of a context whose expressions call no action."""
    raise AssertionError(f"this context cannot run actions, and {action.name} was called")


@dataclass(slots=True)
class Context:
    """The context of one evaluation.

    events: the event of each term; None = not set, or not known yet
    is_block: statements run and may change the events; False = mutable fields are copied when read
    keys, selects: values by position
    aggregates: the value of each aggregate of a `find every`; None = it has none
    locals: variables by slot
    world: event types and actions by name
    outputs: where statements append what they put out
    budget: the steps and bytes that are left
    runs: by term, the events of a run, oldest first
    before: by term, the event before; None = there is none
    depth: how many calls of actions this evaluation is inside of
    invoke: runs a called action; a parameter because expressions do not import statements
    """

    events: Sequence[Event | None] | Mapping[int, Event | None] = ()
    is_block: bool = False
    keys: Sequence[Value] = ()
    selects: Sequence[Value] | Mapping[int, Value] = ()
    aggregates: Mapping[Aggregate, Value] = field(default_factory=dict)
    locals: list[Any] = field(default_factory=list)
    world: World = EMPTY_WORLD
    outputs: list[Output] = field(default_factory=list)
    budget: Budget = field(default_factory=Budget)
    runs: Mapping[int, Sequence[Event]] = field(default_factory=dict)
    before: Mapping[int, Event | None] = field(default_factory=dict)
    depth: int = 0
    invoke: Callable[[Action, Sequence[Value], Context], Value] = no_actions

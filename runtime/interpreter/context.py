"""What an expression is worth in: the events, keys, selects and variables that it may mention, and how far it may go.

`Context` is what the matchers, blocks and columns give to `runtime.interpreter.expressions`; `Names` is the world of one plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from querylang.plan.expression import Aggregate
from querylang.plan.model import Action, EventType, Plan, QueryPlan
from runtime.interpreter.values import EvaluationError, Event, Value, World

MOST_STEPS = 1_000_000
"""Rounds of loops and calls of actions that one match, or one condition, may take."""

DEEPEST_CALLS = 500
"""How many calls of actions may stand within each other."""


class Names:
    """What programs of one query mention by name."""

    def __init__(self, plan: Plan, query: QueryPlan | None = None) -> None:
        self._events = {event.name: event for event in plan.events}
        self._actions: dict[tuple[str | None, str], Action] = {
            (event.name, action.name): action for event in plan.events for action in event.actions
        }
        if query is not None:
            self._actions |= {(None, action.name): action for action in query.actions}

    def event_type(self, name: str) -> EventType:
        """The event type of that name; KeyError if the plan has none."""
        return self._events[name]

    def action(self, event: str | None, name: str) -> Action:
        """An action of an event type, or (None) of the query; KeyError if there is none."""
        return self._actions[event, name]


NOWHERE: World = Names(Plan((), ()))
"""A world without event types and actions."""


@dataclass(slots=True)
class Steps:
    """How many steps are left; shared by all that happens for one match."""

    left: int = MOST_STEPS

    def take(self) -> None:
        """One step; EvaluationError if there is none left."""
        if self.left <= 0:
            raise EvaluationError(f"this took more than {MOST_STEPS:,} steps of loops and calls")
        self.left -= 1


@dataclass(frozen=True, slots=True)
class Output:
    """What a statement puts out. `kind`: `print log send emit route`; `channel` of a `log` is its level."""

    kind: str
    text: str
    channel: str | None = None
    event: Event | None = None


def no_actions(action: Action, _arguments: Sequence[Value], _context: Context) -> Value:
    """The `invoke` of a context whose expressions call no action."""
    raise AssertionError(f"this context cannot run actions, and {action.name} was called")


@dataclass(slots=True)
class Context:
    """One evaluation. `bound`: the event of each term, None where it is not set or not known yet.

    `is_block`: statements run, which may change the pattern's events (they have their own copies); conditions only get
    copies of what could be changed. `keys`, `selects`: values by position; `aggregates`: what each aggregate of a `find every` came to. `locals`: variables by slot. `outputs`: where
    statements put what they send. `depth`: calls around this one.
    `invoke`: how a called action runs (`runtime.interpreter.statements.run_action`), so that expressions need not know statements.
    """

    bound: Sequence[Event | None] | Mapping[int, Event | None] = ()
    is_block: bool = False
    keys: Sequence[Value] = ()
    selects: Sequence[Value] = ()
    aggregates: Mapping[Aggregate, Value] = field(default_factory=dict)
    locals: list[Any] = field(default_factory=list)
    world: World = NOWHERE
    outputs: list[Output] = field(default_factory=list)
    steps: Steps = field(default_factory=Steps)
    depth: int = 0
    invoke: Callable[[Action, Sequence[Value], Context], Value] = no_actions

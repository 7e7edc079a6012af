"""Event types as texts and data define them: all that the checker knows of each."""

from __future__ import annotations

from dataclasses import dataclass, field

from querylang.errors import QueryError
from querylang.plan.expression import Expression, Literal, Type
from querylang.plan.model import Action, EventType, Field
from querylang.source import Span


@dataclass(frozen=True, slots=True)
class ActionSignature:
    """How an action is called.

    - `parameters`: names and types; None: the type could not be resolved, and nothing more is
      reported about it.
    - `returns`: None with `is_open` False: it returns nothing.
    - `inline`: the expression over the event as term 0 that a call becomes
      (`querylang.checker.expressions.inlining`).
    - `problems`: mistakes in the body of an action of a definition file, reported if it is called.
    """

    name: str
    parameters: tuple[tuple[str, Type | None], ...] = ()
    returns: Type | None = None
    is_open: bool = False
    inline: Expression | None = None
    problems: tuple[QueryError, ...] = ()


@dataclass(frozen=True, slots=True)
class EventSchema:
    """An event type.

    - `name`: the plan's name; short, unless types of two packages share it.
    - `time_from`, `heartbeat`: the arguments of the annotations, as the definition's text writes
      them.
    - `is_open`: not all members are known. `untyped`: the fields whose types are not known; None:
      there may be any members.
    - `is_unseen`: nothing defines it, and no data of it is known.
    - `bodies`: the actions for the plan.
    """

    name: str
    fields: tuple[Field, ...] = ()
    constants: tuple[tuple[str, Literal | None], ...] = ()
    actions: tuple[ActionSignature, ...] = ()
    bodies: tuple[Action, ...] = ()
    time_from: str | None = None
    heartbeat: str | None = None
    out_of_order: bool = False
    is_open: bool = False
    untyped: tuple[str, ...] | None = None
    is_unseen: bool = False
    package: str = ""
    span: Span | None = field(default=None, compare=False)

    @property
    def type(self) -> Type:
        """The type of its events."""
        return Type.event(self.name)

    @property
    def qualified_name(self) -> str:
        """The name with its package, which may be written anywhere."""
        short = self.name.rpartition(".")[2]
        return f"{self.package}.{short}" if self.package else self.name

    @property
    def field_names(self) -> list[str]:
        """The fields' names in order."""
        return [item.name for item in self.fields]

    @property
    def event_type(self) -> EventType:
        """The event type for the plan."""
        return EventType(self.name, self.fields, self.bodies, self.time_from, self.heartbeat, self.out_of_order)

    def may_have(self, name: str) -> bool:
        """Whether an unknown member of that name may exist; then it is not reported."""
        return self.is_open and (self.untyped is None or name in self.untyped)

    def type_of(self, name: str) -> Type | None:
        """The type of a field; None if there is no such field."""
        return next((item.type for item in self.fields if item.name == name), None)

    def action(self, name: str) -> ActionSignature | None:
        """The action of that name; None if there is no such action."""
        return next((item for item in self.actions if item.name == name), None)

"""What a text says, as a tree: the grammar's shape with a place on every node, nothing resolved or judged.

The parser makes it, the checker reads it. Parts of the language that are read but not yet supported are whole nodes
where the checker will need them, else an `Unsupported` with their name.
"""

from __future__ import annotations

from dataclasses import dataclass

from querylang.expression import Type
from querylang.source import Source, Span


@dataclass(frozen=True, slots=True)
class Name:
    """A name as written; a qualified one holds its points."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A part of the language that is known and refused; `what` is how the message calls it.

    `names` are those that it would bring: about their use nothing more is said.
    """

    span: Span
    what: str
    names: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class Broken:
    """Something that could not be parsed; its mistake is reported already."""

    span: Span


# Expressions


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal. An integer may be too large yet: a minus sign in front decides."""

    span: Span
    type: Type
    value: bool | int | float | str


@dataclass(frozen=True, slots=True)
class NameUse:
    """A name standing for a value."""

    name: Name

    @property
    def span(self) -> Span:
        """Where it stands."""
        return self.name.span


@dataclass(frozen=True, slots=True)
class TypeConstant:
    """`float.INFINITY`."""

    span: Span
    type: str
    name: Name


@dataclass(frozen=True, slots=True)
class Member:
    """`receiver.name`."""

    span: Span
    receiver: Expression
    name: Name


@dataclass(frozen=True, slots=True)
class Call:
    """`receiver.name(arguments)`, or `name(arguments)` without a receiver."""

    span: Span
    receiver: Expression | None
    name: Name
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x`, `not x`."""

    span: Span
    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    """`left operator right`."""

    span: Span
    operator: str
    left: Expression
    right: Expression


Expression = Constant | NameUse | TypeConstant | Member | Call | Unary | Binary | Unsupported | Broken


@dataclass(frozen=True, slots=True)
class TimeLiteral:
    """`1 min 30 sec`: numbers with their units."""

    span: Span
    parts: tuple[tuple[Constant, Name], ...]


Duration = TimeLiteral | Expression


# Event types


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type as written, parameters included: `float`, `sequence<float>`, `com.example.A`."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Annotation:
    """`@name(arguments)`; `name` may be qualified."""

    span: Span
    name: Name
    arguments: tuple[Constant | Unsupported, ...]


@dataclass(frozen=True, slots=True)
class FieldDefinition:
    """`type name;` of an event."""

    type: TypeName
    name: Name


@dataclass(frozen=True, slots=True)
class ActionDefinition:
    """`action name(...) returns type { ... }`; `returned` is the name in `return name;` if that is the whole body."""

    span: Span
    name: Name
    has_parameters: bool
    returns: TypeName | None
    returned: Name | None


@dataclass(frozen=True, slots=True)
class EventDefinition:
    """An event type; `is_broken`: some of its members could not be parsed."""

    span: Span
    package: str | None
    name: Name
    annotations: tuple[Annotation, ...]
    fields: tuple[FieldDefinition, ...]
    actions: tuple[ActionDefinition, ...]
    unsupported: tuple[Unsupported, ...]
    is_broken: bool


# Queries


@dataclass(frozen=True, slots=True)
class Anything:
    """The filter `*`."""

    span: Span


@dataclass(frozen=True, slots=True)
class Compared:
    """A filter: the field in relation to a value; a bare expression means equality."""

    span: Span
    operator: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Range:
    """A filter: the field between two values."""

    span: Span
    low: Expression
    high: Expression
    includes_low: bool
    includes_high: bool


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter of an input; without a name it is by position."""

    span: Span
    field: Name | None
    test: Anything | Compared | Range


@dataclass(frozen=True, slots=True)
class Key:
    """`field [as name]`, or an action as a key."""

    span: Span
    field: Name
    is_action: bool
    name: Name | None


@dataclass(frozen=True, slots=True)
class Clocking:
    """`[time from name] [wait duration [or Type]]` of an input."""

    span: Span
    time_from: Name | None
    wait: Duration | None
    heartbeat: Name | None


@dataclass(frozen=True, slots=True)
class InputDefinition:
    """One input of a query."""

    span: Span
    event: Name
    filters: tuple[Filter, ...]
    keys: tuple[Key, ...]
    within: Duration | None
    retain: Expression | None
    unique: Unsupported | None
    clocking: Clocking | None


@dataclass(frozen=True, slots=True)
class Inputs:
    """`inputs { ... }`; `is_broken`: some of them could not be parsed."""

    span: Span
    items: tuple[InputDefinition, ...]
    is_broken: bool


@dataclass(frozen=True, slots=True)
class PatternTerm:
    """`Type as name`."""

    span: Span
    event: Name
    name: Name


@dataclass(frozen=True, slots=True)
class PatternWait:
    """`wait(duration) as name`."""

    span: Span
    duration: Duration
    name: Name | None


@dataclass(frozen=True, slots=True)
class PatternJoin:
    """Parts joined by `->`, `and` or `or`."""

    span: Span
    operator: str
    parts: tuple[Pattern, ...]


Pattern = PatternTerm | PatternWait | PatternJoin


@dataclass(frozen=True, slots=True)
class Where:
    """`where condition`."""

    span: Span
    condition: Expression


@dataclass(frozen=True, slots=True)
class Within:
    """`within duration`."""

    span: Span
    duration: Duration


Clause = Where | Within | Unsupported | Broken


@dataclass(frozen=True, slots=True)
class Print:
    """`print text;`."""

    span: Span
    text: Expression


@dataclass(frozen=True, slots=True)
class Send:
    """`send event to channel;`."""

    span: Span
    event: Expression
    channel: Expression


@dataclass(frozen=True, slots=True)
class Return:
    """`return value;`."""

    span: Span
    value: Expression | None


Statement = Print | Send | Return | Unsupported | Broken


@dataclass(frozen=True, slots=True)
class Find:
    """`find pattern clauses block`; `every` is the word's place."""

    span: Span
    every: Span | None
    pattern: Pattern | Broken
    clauses: tuple[Clause, ...]
    block: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """One query. A bare body has no name of its own. A part that is missing or broken is None, and reported."""

    span: Span
    name: Name | None
    inputs: Inputs | None
    find: Find | None
    unsupported: tuple[Unsupported, ...]


@dataclass(frozen=True, slots=True)
class File:
    """What one text holds."""

    source: Source
    events: tuple[EventDefinition, ...]
    queries: tuple[Query, ...]

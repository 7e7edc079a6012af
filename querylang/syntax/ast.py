"""The syntax tree: the grammar's shape with a span on every node, nothing resolved or checked.

The parser builds it; the checker and the printer read it. Trees are compared without their spans.
"""

from __future__ import annotations

from decimal import Decimal

from querylang.dataclass import dataclass, field
from querylang.source import Source, Span


@dataclass(frozen=True, slots=True)
class Name:
    """A name as written, without `#`; a qualified one includes its dots, a leading one too."""

    text: str
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Refused:
    """A construct that queries cannot use, with the reason: `on`, `spawn`, `die` ..."""

    span: Span = field(compare=False)
    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class Broken:
    """A part that could not be parsed; its mistake was reported."""

    span: Span = field(compare=False)


# Types


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type as written: `float`, `sequence<float>`, `com.example.A`.

    `of`: the types in `<` and `>`.
    """

    span: Span = field(compare=False)
    word: str
    of: tuple[TypeName, ...] = ()


# Expressions


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal.

    An integer may still be too large; a minus sign before it decides. Decimals: `1.5d`.
    """

    span: Span = field(compare=False)
    value: bool | int | float | Decimal | str


@dataclass(frozen=True, slots=True)
class NameUse:
    """A name used as a value."""

    name: Name

    @property
    def span(self) -> Span:
        """The place in the source."""
        return self.name.span


@dataclass(frozen=True, slots=True)
class TypeConstant:
    """`float.INFINITY`."""

    span: Span = field(compare=False)
    type: TypeName
    name: Name


@dataclass(frozen=True, slots=True)
class Member:
    """`receiver.name`."""

    span: Span = field(compare=False)
    receiver: Expression
    name: Name


@dataclass(frozen=True, slots=True)
class Call:
    """`receiver.name(arguments)`; without a receiver `name` may be qualified."""

    span: Span = field(compare=False)
    receiver: Expression | None
    name: Name
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class TypeCall:
    """`integer.parse(text)`, `sequence<float>()`.

    `name` None: a constructor, `location(1.0, 2.0, 3.0, 4.0)`.
    """

    span: Span = field(compare=False)
    type: TypeName
    name: Name | None
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class New:
    """`new sequence<float>`: an empty one."""

    span: Span = field(compare=False)
    type: TypeName


@dataclass(frozen=True, slots=True)
class Index:
    """`receiver[index]`; `more`: `Table[index, more]`, of a table with several keys."""

    span: Span = field(compare=False)
    receiver: Expression
    index: Expression
    more: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class SequenceLiteral:
    """`[a, b]`."""

    span: Span = field(compare=False)
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class DictionaryLiteral:
    """`{k: v, l: w}`: pairs of key and value."""

    span: Span = field(compare=False)
    items: tuple[tuple[Expression, Expression], ...]


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x`, `not x`, `x is null`, `x is not null`."""

    span: Span = field(compare=False)
    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    """`left operator right`."""

    span: Span = field(compare=False)
    operator: str
    left: Expression
    right: Expression


Expression = (
    Constant
    | NameUse
    | TypeConstant
    | Member
    | Call
    | TypeCall
    | New
    | Index
    | SequenceLiteral
    | DictionaryLiteral
    | Unary
    | Binary
    | Refused
    | Broken
)


@dataclass(frozen=True, slots=True)
class TimeLiteral:
    """`1 min 30 sec`: numbers with their units."""

    span: Span = field(compare=False)
    parts: tuple[tuple[Constant, Name], ...]


Duration = TimeLiteral | Expression


# Statements


@dataclass(frozen=True, slots=True)
class Print:
    """`print text;`."""

    span: Span = field(compare=False)
    text: Expression


@dataclass(frozen=True, slots=True)
class Log:
    """`log text at LEVEL;`; without a level `level` is None."""

    span: Span = field(compare=False)
    text: Expression
    level: Name | None


@dataclass(frozen=True, slots=True)
class Send:
    """`send event to channel;`; the event may also be given as the name of its type."""

    span: Span = field(compare=False)
    event: Expression
    channel: Expression


@dataclass(frozen=True, slots=True)
class Emit:
    """`emit event;`, `emit event to channel;`."""

    span: Span = field(compare=False)
    event: Expression
    channel: Expression | None


@dataclass(frozen=True, slots=True)
class Route:
    """`route event;`."""

    span: Span = field(compare=False)
    event: Expression


@dataclass(frozen=True, slots=True)
class VendorSend:
    r"""`%send("eventType":"T", ..., "channel":"\"c\"", "fields":{"f":"expression"});`.

    The vendor's editor writes it. The expressions in the strings are parsed, with places in the
    strings.

    - `channel`: None: not given.
    - `extra`: the other items as written, for the printer.
    """

    span: Span = field(compare=False)
    event: Name
    channel: Expression | None
    fields: tuple[tuple[Name, Expression], ...]
    extra: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class VendorCustom:
    """`%custom("title":"...") { statements }`: a block; `items` as written, for the printer."""

    span: Span = field(compare=False)
    items: tuple[tuple[str, str], ...]
    body: Block


@dataclass(frozen=True, slots=True)
class Declaration:
    """`float x := 1.0;`; without a value the type's default."""

    span: Span = field(compare=False)
    type: TypeName
    name: Name
    value: Expression | None


@dataclass(frozen=True, slots=True)
class Assignment:
    """`target := value;`; a target is a name, a member or an index."""

    span: Span = field(compare=False)
    target: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An expression as a statement: a call."""

    span: Span = field(compare=False)
    value: Expression


@dataclass(frozen=True, slots=True)
class If:
    """`if condition { ... } else { ... }`.

    `else if` is an else part with one `If`; None: no else part.
    """

    span: Span = field(compare=False)
    condition: Expression
    then: Block
    otherwise: Block | None


@dataclass(frozen=True, slots=True)
class IfPresent:
    """`ifpresent a as b, c { ... } else { ... }`: unpacks optionals.

    Without `as` a name keeps its own.
    """

    span: Span = field(compare=False)
    bindings: tuple[tuple[Expression, Name], ...]
    then: Block
    otherwise: Block | None


@dataclass(frozen=True, slots=True)
class While:
    """`while condition { ... }`."""

    span: Span = field(compare=False)
    condition: Expression
    body: Block


@dataclass(frozen=True, slots=True)
class For:
    """`for name in sequence { ... }`."""

    span: Span = field(compare=False)
    name: Name
    sequence: Expression
    body: Block


@dataclass(frozen=True, slots=True)
class Break:
    """`break;`."""

    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Continue:
    """`continue;`."""

    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Return:
    """`return value;`."""

    span: Span = field(compare=False)
    value: Expression | None


@dataclass(frozen=True, slots=True)
class Block:
    """`{ ... }`; also a statement of its own."""

    span: Span = field(compare=False)
    statements: tuple[Statement, ...]


Statement = (
    Print
    | Log
    | Send
    | Emit
    | Route
    | VendorSend
    | VendorCustom
    | Declaration
    | Assignment
    | Evaluation
    | If
    | IfPresent
    | While
    | For
    | Break
    | Continue
    | Return
    | Block
    | Refused
    | Broken
)


# Event types


@dataclass(frozen=True, slots=True)
class Annotation:
    """`@name(arguments)`; `name` may be qualified; `arguments` None: without brackets."""

    span: Span = field(compare=False)
    name: Name
    arguments: tuple[Constant | Broken, ...] | None


@dataclass(frozen=True, slots=True)
class FieldDefinition:
    """`type name;` of an event."""

    span: Span = field(compare=False)
    type: TypeName
    name: Name


@dataclass(frozen=True, slots=True)
class ConstantDefinition:
    """`constant type name := literal;` of an event; the literal may have a minus sign."""

    span: Span = field(compare=False)
    type: TypeName
    name: Name
    value: Expression


@dataclass(frozen=True, slots=True)
class Parameter:
    """`type name` of an action."""

    span: Span = field(compare=False)
    type: TypeName
    name: Name


@dataclass(frozen=True, slots=True)
class ActionDefinition:
    """`action name(...) returns type { ... }` of an event or of a query; `span`: of its head."""

    span: Span = field(compare=False)
    name: Name
    parameters: tuple[Parameter, ...]
    returns: TypeName | None
    body: Block


@dataclass(frozen=True, slots=True)
class EventDefinition:
    """An event type; Broken members are those that could not be parsed."""

    span: Span = field(compare=False)
    package: str | None
    name: Name
    annotations: tuple[Annotation, ...]
    members: tuple[FieldDefinition | ConstantDefinition | ActionDefinition | Refused | Broken, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: `string owner;`, `key string host;`, `key network cidr;`.

    `type` None: a network.
    """

    span: Span = field(compare=False)
    name: Name
    type: TypeName | None
    is_key: bool


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """A table beside the stream; Broken columns are those that could not be parsed."""

    span: Span = field(compare=False)
    name: Name
    columns: tuple[Column | Broken, ...]


# Queries


@dataclass(frozen=True, slots=True)
class Metadata:
    """`metadata { "key": "value" ... }`."""

    span: Span = field(compare=False)
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ParameterDefinition:
    """`float period := 60.0;` of a query; without a value an instance must give one."""

    span: Span = field(compare=False)
    type: TypeName
    name: Name
    value: Expression | None


@dataclass(frozen=True, slots=True)
class Parameters:
    """`parameters { ... }`."""

    span: Span = field(compare=False)
    items: tuple[ParameterDefinition | Broken, ...]


@dataclass(frozen=True, slots=True)
class Anything:
    """The filter `*`."""

    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Compared:
    """A filter: the field compared with a value."""

    span: Span = field(compare=False)
    operator: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Range:
    """A filter: the field between two values."""

    span: Span = field(compare=False)
    low: Expression
    high: Expression
    includes_low: bool
    includes_high: bool


@dataclass(frozen=True, slots=True)
class Condition:
    """A filter: a condition on the event; without any field, the value of the field there."""

    span: Span = field(compare=False)
    expression: Expression


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter of an input; without a name it is by position, or a condition."""

    span: Span = field(compare=False)
    field: Name | None
    test: Anything | Compared | Range | Condition


@dataclass(frozen=True, slots=True)
class Key:
    """`field [as name]`, or `action(...) as name` with `arguments`; `?` behind either.

    Also of `with unique` and `new by`, without `as` and `?`.

    - `members`: of `src.ip`, the names behind the field's.
    - `may_miss`: whether there is a `?`.
    """

    span: Span = field(compare=False)
    source: Name
    arguments: tuple[Expression, ...] | None
    name: Name | None
    members: tuple[Name, ...] = ()
    may_miss: bool = False

    @property
    def written(self) -> str:
        """The field with its members, or the action."""
        return ".".join(part.text for part in (self.source, *self.members))


@dataclass(frozen=True, slots=True)
class Clocking:
    """`[time from name] wait duration [or Type]` of an input."""

    span: Span = field(compare=False)
    time_from: Name | None
    wait: Duration | None
    heartbeat: Name | None


@dataclass(frozen=True, slots=True)
class NewBy:
    """`new by field, action() within duration` of an input."""

    span: Span = field(compare=False)
    values: tuple[Key, ...]
    within: Duration


@dataclass(frozen=True, slots=True)
class InputDefinition:
    """One input of a query; `role`: its name in patterns, None: that of the event type."""

    span: Span = field(compare=False)
    event: Name
    filters: tuple[Filter, ...]
    keys: tuple[Key, ...]
    within: Duration | None
    retain: Expression | None
    unique: tuple[Key, ...]
    clocking: Clocking | None
    new: NewBy | None = None
    role: Name | None = None


@dataclass(frozen=True, slots=True)
class Inputs:
    """`inputs { ... }`; Broken: an input that could not be parsed."""

    span: Span = field(compare=False)
    items: tuple[InputDefinition | Broken, ...]


@dataclass(frozen=True, slots=True)
class PatternTerm:
    """`Type as name`."""

    span: Span = field(compare=False)
    event: Name
    name: Name


@dataclass(frozen=True, slots=True)
class PatternWait:
    """`wait(duration) as name`, or `wait(duration) as name {1,3}`.

    `most`: how often it is due.
    """

    span: Span = field(compare=False)
    duration: Duration
    name: Name | None
    most: int = 1


MOST_TERMS = 1000
"""Events of a pattern."""

MOST_ROUNDS = 10_000
"""How often a wait at the end may be due."""


@dataclass(frozen=True, slots=True)
class PatternJoin:
    """Two or more parts joined by `->`, `and` or `or`.

    `nexts`: of `->`, by link between two parts, whether `=>` is in its place; empty: nowhere.
    """

    span: Span = field(compare=False)
    operator: str
    parts: tuple[Pattern, ...]
    nexts: tuple[bool, ...] = ()

    @property
    def links(self) -> tuple[str, ...]:
        """What is written between the parts."""
        return tuple("=>" if is_next else self.operator for is_next in self.nexts) or (self.operator,) * (
            len(self.parts) - 1
        )


@dataclass(frozen=True, slots=True)
class PatternRepeat:
    """`A as a {2,3} consecutive`, `(A as a -> B as b)+`.

    - `least`, `most`: numbers of repeats; `most` None: any number.
    - `sign`: `+`, `*` or `?` if it is written so; else empty.
    """

    span: Span = field(compare=False)
    inside: Pattern
    least: int
    most: int | None
    sign: str
    is_consecutive: bool


Pattern = PatternTerm | PatternWait | PatternJoin | PatternRepeat


@dataclass(frozen=True, slots=True)
class Previous:
    """`prev(a)` among the names of a `between`; `word`: as written, perhaps another than `prev`."""

    span: Span = field(compare=False)
    word: Name
    name: Name

    @property
    def text(self) -> str:
        """What is written."""
        return f"{self.word.text}({self.name.text})"


@dataclass(frozen=True, slots=True)
class Between:
    """`between (a b ...)`."""

    span: Span = field(compare=False)
    names: tuple[Name | Previous, ...]


@dataclass(frozen=True, slots=True)
class Where:
    """`where condition`."""

    span: Span = field(compare=False)
    condition: Expression


@dataclass(frozen=True, slots=True)
class Within:
    """`within duration [between (...)]`."""

    span: Span = field(compare=False)
    duration: Duration
    between: Between | None


@dataclass(frozen=True, slots=True)
class Without:
    """`without Type as name [where condition] [between (...)]`; `where`: the clause after it."""

    span: Span = field(compare=False)
    event: Name
    name: Name
    where: Where | None
    between: Between | None


@dataclass(frozen=True, slots=True)
class Select:
    """`select expression as name`."""

    span: Span = field(compare=False)
    value: Expression
    name: Name


@dataclass(frozen=True, slots=True)
class Having:
    """`having condition`."""

    span: Span = field(compare=False)
    condition: Expression


@dataclass(frozen=True, slots=True)
class Skip:
    """`after match skip past last event`, or `... to first name`, `... to last name`.

    `to`: `first` or `last`; empty, and `name` None: past the last event.
    """

    span: Span = field(compare=False)
    to: str
    name: Name | None


@dataclass(frozen=True, slots=True)
class MatchLimit:
    """`at most count per duration [by expression, ...]`; `span`: without the last part."""

    span: Span = field(compare=False)
    count: Expression
    duration: Duration
    values: tuple[Expression, ...]


Clause = Where | Within | Without | Select | Having | Skip | MatchLimit | Broken


@dataclass(frozen=True, slots=True)
class Find:
    """`find [every | all] pattern clauses block`; `span`: of these words.

    `block` None: without one.
    """

    span: Span = field(compare=False)
    is_every: bool
    pattern: Pattern | Broken
    clauses: tuple[Clause, ...]
    block: Block | None
    is_all: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """One query; a bare body has no name.

    A missing part is None; one that could not be parsed is Broken.
    """

    span: Span = field(compare=False)
    name: Name | None
    metadata: Metadata | Broken | None
    parameters: Parameters | Broken | None
    inputs: Inputs | Broken | None
    find: Find | Broken | None
    actions: tuple[ActionDefinition, ...]


@dataclass(frozen=True, slots=True)
class Package:
    """`package com.example;`."""

    span: Span = field(compare=False)
    name: Name


@dataclass(frozen=True, slots=True)
class Using:
    """`using com.example.Name;`, `using com.example.*;` (then `is_all`)."""

    span: Span = field(compare=False)
    name: Name
    is_all: bool


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment as written, with its marks; the printer puts it back."""

    text: str
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class File:
    """One text.

    `items`: event types, tables and queries in text order. `comments`: not part of comparisons.
    """

    source: Source = field(compare=False)
    package: Package | None
    usings: tuple[Using, ...]
    items: tuple[EventDefinition | TableDefinition | Query, ...]
    comments: tuple[Comment, ...] = field(default=(), compare=False)

    @property
    def events(self) -> tuple[EventDefinition, ...]:
        """The event types."""
        return tuple(item for item in self.items if isinstance(item, EventDefinition))

    @property
    def tables(self) -> tuple[TableDefinition, ...]:
        """The tables beside the stream."""
        return tuple(item for item in self.items if isinstance(item, TableDefinition))

    @property
    def queries(self) -> tuple[Query, ...]:
        """The queries."""
        return tuple(item for item in self.items if isinstance(item, Query))

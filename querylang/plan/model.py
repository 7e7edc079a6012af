"""The plan: all that an executor needs to run a set of queries, as frozen data with a dict form.

`to_dict` and `from_dict` carry it to executors and into checkpoints. Durations and times are
integer microseconds. A duration that uses a parameter is an expression in seconds until
`querylang.parameters` makes it a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, assert_never

from querylang.dataclass import dataclass, field, fields, replace
from querylang.plan import expression as expressions
from querylang.plan.encoding import HERE_ONLY, Codec, WrongPart
from querylang.plan.expression import (
    Aggregate,
    EndOf,
    EventOf,
    Expression,
    Items,
    Kind,
    Literal,
    SelectOf,
    Type,
    rewritten,
    terms_of,
)

PLAN_VERSION = 10
"""Of a plan with a query that looks something up in a table beside the stream, or whose inputs have
roles."""

FED_VERSION = 9
"""Of another plan with a query whose keys may be missing, or that routes events to queries."""

TOLD_VERSION = 8
"""Of another plan with a query whose results have its metadata."""

VALUES_VERSION = 7
"""Of another plan with a query that remembers values or asks for nulls, or with parameters that are
lists."""

NULLS_VERSION = 6
"""Of another plan with a query in which nulls are as in SQL."""

ANNOTATED_VERSION = 5
"""Of another plan whose event types have annotations."""

ADDED_VERSION = 4
"""Of a plan whose queries use fields of `ADDED`; other plans are written as `FIRST_VERSION`."""

FIRST_VERSION = 3
"""The earliest version that can be read."""


class PlanVersionError(ValueError):
    """A plan of a version that this release cannot read."""


# Statements


@dataclass(frozen=True, slots=True)
class Print:
    """`print text;`"""

    text: Expression


@dataclass(frozen=True, slots=True)
class Log:
    """`log text at LEVEL;`; `level` is one of `querylang.plan.library.LOG_LEVELS`."""

    text: Expression
    level: str


@dataclass(frozen=True, slots=True)
class Send:
    """`send event to "channel";`."""

    event: Expression
    channel: Expression


@dataclass(frozen=True, slots=True)
class Emit:
    """`emit event;`, with a channel or without."""

    event: Expression
    channel: Expression | None


@dataclass(frozen=True, slots=True)
class Route:
    """`route event;`."""

    event: Expression


@dataclass(frozen=True, slots=True)
class Assign:
    """`target := value`; a declaration too. `target` is a LocalOf, MemberOf or IndexOf."""

    target: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class Evaluate:
    """A call as a statement."""

    value: Expression


@dataclass(frozen=True, slots=True)
class If:
    """`if`; without an else part `otherwise` is empty."""

    condition: Expression
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class IfPresent:
    """Runs `then` if all `values` (optionals) are set, each in its slot; else `otherwise`."""

    values: tuple[Expression, ...]
    slots: tuple[int, ...]
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class While:
    """`while condition { ... }`."""

    condition: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class For:
    """`for x in sequence { ... }`; `slot` is x's."""

    slot: int
    sequence: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Break:
    """`break;`"""


@dataclass(frozen=True, slots=True)
class Continue:
    """`continue;`"""


@dataclass(frozen=True, slots=True)
class Return:
    """`return value;`; ends an action, or the block."""

    value: Expression | None


Statement = (
    Print | Log | Send | Emit | Route | Assign | Evaluate | If | IfPresent | While | For | Break | Continue | Return
)


@dataclass(frozen=True, slots=True)
class Action:
    """An action. Its parameters are the first slots; in an event's action slot 0 is the event."""

    name: str
    parameters: tuple[Type, ...]
    slots: int
    returns: Type | None
    body: tuple[Statement, ...]


# Event types


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an event type."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class EventType:
    """An event type; the order of its fields is that of `toString` and of the constructor.

    Its annotations are for texts that use the type without its definition. Engines do not need
    them: the inputs have what follows from them.

    - `time_from`: the argument of `@TimeFrom`.
    - `heartbeat`: the event type of `@Heartbeat`.
    - `out_of_order`: whether there is `@OutOfOrder`.
    """

    name: str
    fields: tuple[Field, ...]
    actions: tuple[Action, ...] = ()
    time_from: str | None = None
    heartbeat: str | None = None
    out_of_order: bool = False

    @property
    def annotations(self) -> tuple[str | None, str | None, bool]:
        """All annotations."""
        return self.time_from, self.heartbeat, self.out_of_order

    def annotated_as(self, other: EventType) -> EventType:
        """The same with the annotations of another definition."""
        time_from, heartbeat, out_of_order = other.annotations
        return replace(self, time_from=time_from, heartbeat=heartbeat, out_of_order=out_of_order)

    def type_of(self, field: str) -> Type:
        """The type of a field; KeyError if there is no such field."""
        for candidate in self.fields:
            if candidate.name == field:
                return candidate.type
        raise KeyError(field)

    def action(self, name: str) -> Action:
        """The action of that name; KeyError if there is no such action."""
        return _named(self.actions, name)


@dataclass(frozen=True, slots=True)
class Table:
    """A table beside the stream.

    - `keys`: what its rows are found by, in order.
    - `network`: the place of the key that is a network of addresses; None: all are equal values.
    - `fields`: the others.
    - `place`: a file with its content, for other processes; empty: there is none.
    - `content`: what it holds, in this process (`runtime.lookup_tables`); None: not known yet.
    """

    name: str
    keys: tuple[Field, ...]
    network: int | None
    fields: tuple[Field, ...]
    place: str = ""
    content: Any = field(default=None, compare=False, repr=False, metadata={HERE_ONLY: True})

    def type_of(self, name: str) -> Type | None:
        """The type of a field that is not a key; None if there is no such field."""
        return next((item.type for item in self.fields if item.name == name), None)


# Automata. One reads the events of a key *backwards from the latest one* (`docs/architecture.md`).
# A state is the remainder of the pattern that is still to be found; a transition binds one event to
# one or more names. The reference matcher and the kernel run this table, and `explain` prints it.

ACCEPT = -1
"""The target of a transition that completes the candidate."""


@dataclass(frozen=True, slots=True)
class Transition:
    """Binds one event of `input` to the terms `binds`, if `checks` (indexes of conditions) hold.

    - `follows`: only the event directly before the one that was bound last, in the total order.
    - `also`: other inputs that the event has to serve, too.
    """

    input: int
    binds: tuple[int, ...]
    checks: tuple[int, ...]
    target: int
    follows: bool = False
    also: tuple[int, ...] = ()

    @property
    def inputs(self) -> tuple[int, ...]:
        """The inputs that the event has to serve."""
        return (self.input, *self.also)


@dataclass(frozen=True, slots=True)
class State:
    """What may be bound next, going back in time.

    For the same event earlier transitions are preferred.

    `accepts`: None: the candidate is not complete. Else it may end here if these conditions hold;
    more events are preferred to the end.
    """

    transitions: tuple[Transition, ...]
    accepts: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Automaton:
    """The states; the transitions of `states[0]` bind the latest event."""

    states: tuple[State, ...]


# Queries

Duration = int | Expression
"""Microseconds; before parameters have values it may be an expression in seconds (float or
integer).
"""

Count = int | Expression
"""A number of events; before parameters have values it may be an integer expression."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a query; `default` None: an instance must give a value."""

    name: str
    type: Type
    default: Literal | Items | None

    @property
    def value(self) -> Any:
        """The default as a Python value; a list for a sequence. None: there is none."""
        match self.default:
            case Items(items=items):
                return [item.value for item in items if isinstance(item, Literal)]
            case Literal(value=value):
                return value
        return None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The event type that says: this input has delivered everything up to my time.

    - `keys`: where its events carry the input's key, as `Input.keys`; empty with a keyed input: it
      counts for every key.
    - `time_from`: as in `Input`.
    """

    event: str
    keys: tuple[Expression, ...]
    time_from: Expression | None


class TimelineKind(StrEnum):
    """What has a watermark of its own under a policy; the values are encoded in plans."""

    KEY = "key"  # a partition key of an input: the query's own rules hold
    PARTITION = "partition"  # a source partition
    SUBSTREAM = "substream"  # the records with the same values of the fields `over`
    EVENT_TYPE = "input"  # the events of one input


@dataclass(frozen=True, slots=True)
class TimePolicy:
    """The ordering policy of a source, if one was chosen (docs/time.md).

    Durations are microseconds.

    The bound of a timeline is the largest of these: its heartbeats, the arrival clock less
    `max_delay`, the times of the records that advance it less `disorder`, one microsecond after the
    newest time once it is idle, and the bound of the event type `imports`.

    - `timeline`: what has a watermark of its own (a decoded plan may give its value).
    - `over`: the fields that divide substreams.
    - `early`: how far a record may be ahead of its arrival; others are dropped; None: no limit.
    - `max_delay`: None: the arrival clock does not advance the bound.
    - `disorder`: may be negative.
    - `every`, `every_span`: records advance the bound every so many records, or every such span of
      event time; both None: records do not advance it.
    - `idle`: idle timeout; None: never idle.
    - `imports`: an event type whose bound also counts; None: no such type.
    - `action`: what happens to a record below the bound: "drop", "adjust" (its time becomes the
      bound), or "clip" (the same for an interval that reaches beyond the bound).
    - `is_strict`: an event exactly at the bound is not released.
    - `is_final`: the end of the input is a bound beyond all times.
    - `partitions`: how many partitions the source has; None: those seen.
    - `start`: when the clock of a source without records begins.
    - `leeway`, `reorder`: with timelines per key, what late records are allowed at the start.
    """

    name: str
    timeline: TimelineKind
    over: tuple[str, ...] = ()
    early: int | None = None
    max_delay: int | None = None
    disorder: int = 0
    every: int | None = None
    every_span: int | None = None
    idle: int | None = None
    imports: str | None = None
    action: str = "drop"
    is_strict: bool = False
    is_final: bool = False
    partitions: int | None = None
    start: int | None = None
    leeway: int | None = None
    reorder: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "timeline", TimelineKind(self.timeline))

    @property
    def is_per_key(self) -> bool:
        """Whether each key of an input has its own timeline, by the query's own rules."""
        return self.timeline is TimelineKind.KEY

    @property
    def events_last(self) -> bool:
        """Whether events may be intervals: they have an end as well as a start."""
        return self.timeline is TimelineKind.EVENT_TYPE


@dataclass(frozen=True, slots=True)
class NewBy:
    """`new by values within duration`: only the first event of equal values counts.

    `values`: over the event, which is term 0; a null equals a null.
    """

    values: tuple[Expression, ...]
    within: Duration


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a query. Its expressions see its event as term 0.

    - `event`: the event type's name.
    - `keys`: the values of the partition key.
    - `unique`: the values that `with unique` compares.
    - `within`, `retain`: the window; at least one is set.
    - `wait`: None: the event's time is its arrival.
    - `time_from`: the source time in seconds (float or integer); None: the column that the source
      declares.
    - `policy`: the ordering policy of its source, if one was chosen.
    - `sources`: the sources that can deliver its events; empty: not known.
    - `new`: which of its events count for the pattern; None: all.
    - `optional_keys`: the places of keys whose null is a value of its own.
    - `role`: its name in the pattern; None: that of the event type.
    """

    event: str
    keys: tuple[Expression, ...]
    filter: Expression | None
    within: Duration | None
    retain: Count | None
    unique: tuple[Expression, ...]
    wait: Duration | None
    time_from: Expression | None
    out_of_order: bool
    heartbeat: Heartbeat | None
    policy: TimePolicy | None = None
    sources: tuple[str, ...] = ()
    new: NewBy | None = None
    optional_keys: tuple[int, ...] = ()
    role: str | None = None

    @property
    def name(self) -> str:
        """Its name in the pattern; unique in a query."""
        return self.event if self.role is None else self.role


@dataclass(frozen=True, slots=True)
class Term:
    """A named event of the pattern, or a run of events.

    - `input`: an index.
    - `is_optional`: it may be unset: it is under an `or`, or a `?` follows it.
    - `sides`: of a `find all`: each `or` above it, by number, and on which side of it it is.
    - `group`: None: it is one event. Else it is a run; the terms of one repeated group have the
      same number.
    - `may_be_empty`: of a run: it may have no event.
    - `side`: of a run under an `or`: all terms of its side. It is unset if none of them is bound.
    """

    name: str
    input: int
    is_optional: bool = False
    sides: tuple[tuple[int, int], ...] = ()
    group: int | None = None
    may_be_empty: bool = False
    side: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """`wait(duration) as name` before or after a pattern; `most`: how often it is due at most."""

    duration: Duration
    name: str | None
    most: int = 1


@dataclass(frozen=True, slots=True)
class Between:
    """The names of a range: terms by index, the leading and the trailing wait by a flag each.

    `middle`: the waits between steps, by the index of their `Gap` in the conditions.
    """

    terms: tuple[int, ...]
    leading: bool = False
    trailing: bool = False
    middle: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Where:
    """A part of a `where` clause between its outer `and`s.

    `mentions`: the terms in the whole clause.
    """

    condition: Expression
    mentions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Within:
    """The range is shorter than `duration`; `between` None: all events of the pattern."""

    duration: Duration
    between: Between | None


@dataclass(frozen=True, slots=True)
class Without:
    """No event of the input that fulfils `condition` is in the range.

    `between` None: the whole pattern.

    In `condition` the event is the term after the last one of the pattern.
    """

    input: int
    name: str
    condition: Expression | None
    between: Between | None


@dataclass(frozen=True, slots=True)
class Gap:
    """`-> wait(duration) as name ->`: what follows the wait is not earlier than its point.

    The point is `duration` after the latest event of the terms `before`.

    - `after`: the terms of what follows directly.
    """

    duration: Duration
    name: str | None
    before: tuple[int, ...]
    after: tuple[int, ...]


Condition = Where | Within | Without | Gap


def mentioned_terms(condition: Condition, count: int) -> set[int]:
    """The terms in a condition's expression or range; `count`: how many the pattern has."""
    match condition:
        case Where(mentions=mentions):
            return set(mentions)
        case Within(between=between):
            return set(between.terms) if between is not None else set()
        case Gap():  # it is about those that are bound
            return set()
        case Without(condition=expression, between=between):
            named = set(between.terms) if between is not None else set()
            return named | (set() if expression is None else set(terms_of(expression) - {count}))
    assert_never(condition)


@dataclass(frozen=True, slots=True)
class Select:
    """`select value as name`; under `find every` `value` mentions terms in aggregates only."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Every:
    """The selects of a `find every` in order, and its `having` clauses."""

    selects: tuple[Select, ...]
    having: tuple[Expression, ...]

    @property
    def event_terms(self) -> dict[str, int]:
        """By name of a select that is an event, in text order: the term of the event."""
        terms = {select.name: self.term_of(select.value) for select in self.selects}
        return {name: term for name, term in terms.items() if term is not None}

    def term_of(self, expression: Expression) -> int | None:
        """The term whose event an expression is, as in `first(a)`; None = it is another value."""
        match expression:
            case Aggregate(function="first" | "last" | "nth", arguments=(EventOf(term=term), *_)):
                return term
            case SelectOf(index=index):
                return self.term_of(self.selects[index].value)
        return None

    def expanded(self, expression: Expression) -> Expression:
        """The expression with those of selects in place of their names; events keep their names.

        So what fails in a select fails in a `having`, too, and is not a null there.
        """

        def change(node: Expression) -> Expression:
            if isinstance(node, SelectOf) and self.term_of(node) is None:
                return self.expanded(self.selects[node.index].value)
            return node

        return rewritten(expression, change)


@dataclass(frozen=True, slots=True)
class Skip:
    """`after match skip`: no later match of the partition binds an event before a place.

    `to`: `first` or `last`, of the events of `term`; empty, and `term` None: the place is behind
    the latest event of the match.
    """

    to: str = ""
    term: int | None = None


@dataclass(frozen=True, slots=True)
class MatchLimit:
    """`at most count per duration by values`: how many matches of equal values are given.

    `values`: over the match; of a `find every` over aggregates and keys. A null equals a null.
    """

    count: Count
    duration: Duration
    values: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a query: name and type."""

    name: str
    type: Type


METADATA, SEVERITY = "metadata", "severity"
"""Columns of results that say something about their query; the second is a key of the first."""

EDITION = "#"
"""Between a title and the edition of the text; no name has it."""


def public_title(title: str) -> str:
    """A title as users see it: without its edition."""
    return title.partition(EDITION)[0]


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """One query.

    - `conditions`: the automaton's checks and `decided_late` are indexes of them.
    - `decided_late`: the conditions that are decided when the trailing wait ends.
    - `slots`: the number of local variables of the block.
    - `metadata`: pairs as written.
    - `instance`: its name; empty: the only one, or a template.
    - `pattern`: the pattern without its waits, as text for people.
    - `forget_keys`: how long after its last arrival a key is forgotten, in microseconds; None: it
      never is.
    - `selects`: of a query that is not a `find every`.
    - `finds_all`: each candidate with the latest event is a match, not only the most recent one.
    - `edition`: tells the texts apart that a query of this name has had one after the other.
    - `starts`, `ends`: in microseconds, from which and until before which moment a match must be to
      be given out; None: there is no such limit. They are set while one text hands over to another.
    - `at_most`: which matches are given; None: all.
    - `shows_metadata`: whether results have the metadata, as in no plan before version 8.
    - `routes`: the event types that its block routes to the queries of the plan that take them;
      empty in plans before version 9: what is routed is an output only.
    - `tables`: those that it looks something up in.
    - `nulls_fail`: whether a null that is used is a failure, as in all plans before version 6; else
      it is a null of SQL (docs/language.md).
    """

    name: str
    keys: tuple[Key, ...]
    inputs: tuple[Input, ...]
    terms: tuple[Term, ...]
    automaton: Automaton
    conditions: tuple[Condition, ...]
    block: tuple[Statement, ...]
    slots: int = 0
    actions: tuple[Action, ...] = ()
    leading: Wait | None = None
    trailing: Wait | None = None
    decided_late: tuple[int, ...] = ()
    every: Every | None = None
    parameters: tuple[Parameter, ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()
    instance: str = ""
    pattern: str = ""
    forget_keys: int | None = None
    selects: tuple[Select, ...] = ()
    skip: Skip | None = None
    finds_all: bool = False
    edition: int = 0
    starts: int | None = None
    ends: int | None = None
    nulls_fail: bool = True
    at_most: MatchLimit | None = None
    shows_metadata: bool = False
    routes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()

    @property
    def told(self) -> dict[str, Any]:
        """By column, what each result says about its query; a name of the user's own wins."""
        if not self.shows_metadata:
            return {}
        pairs, taken = dict(self.metadata), set(map(str.casefold, self._names()))
        columns = {METADATA: pairs, SEVERITY: pairs.get(SEVERITY)}
        return {name: value for name, value in columns.items() if value is not None and name not in taken}

    def _names(self) -> Iterator[str]:
        """The names that a user has given to parts of a match."""
        yield from self.key_names
        yield from (term.name for term in self.terms)
        yield from (item.name for item in self.selected)
        waits = (self.leading, *self.gaps, self.trailing)
        yield from (wait.name for wait in waits if wait is not None and wait.name is not None)

    @property
    def selected(self) -> tuple[Select, ...]:
        """What each match selects, in text order."""
        return self.selects if self.every is None else self.every.selects

    @property
    def selected_events(self) -> dict[str, int]:
        """By name of a select that is an event, in text order: the term of the event."""
        if self.every is not None:
            return self.every.event_terms
        return {item.name: item.value.term for item in self.selects if isinstance(item.value, EventOf | EndOf)}

    @property
    def optional_keys(self) -> frozenset[int]:
        """The places of keys that may be missing in events of some input."""
        return frozenset(place for item in self.inputs for place in item.optional_keys)

    @property
    def has_roles(self) -> bool:
        """Whether any input has a role."""
        return any(item.role is not None for item in self.inputs)

    @property
    def shared_types(self) -> dict[str, tuple[int, ...]]:
        """The event types that are several inputs, each with these."""
        found: dict[str, tuple[int, ...]] = {}
        for index, item in enumerate(self.inputs):
            found[item.event] = (*found.get(item.event, ()), index)
        return {event: inputs for event, inputs in found.items() if len(inputs) > 1}

    @property
    def remembers(self) -> bool:
        """Whether something depends on values of the past that are not in its windows."""
        return self.at_most is not None or any(item.new is not None for item in self.inputs)

    @property
    def title(self) -> str:
        """The public title, and the edition if it is not the first; unique in a plan."""
        if not (self.edition or self.instance):
            return self.name
        return f"{self.public_title}{EDITION}{self.edition}" if self.edition else self.public_title

    @property
    def public_title(self) -> str:
        """The name, and after a slash the instance's name if it has one: all that users see."""
        return f"{self.name}/{self.instance}" if self.instance else self.name

    @property
    def within(self) -> int | None:
        """The shortest `within` over the whole pattern in microseconds; None: no limit."""
        whole = [item.duration for item in self.conditions if isinstance(item, Within) and item.between is None]
        return min((known(duration) for duration in whole), default=None)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The waits between steps; they are the first conditions."""
        return tuple(item for item in self.conditions if isinstance(item, Gap))

    @property
    def has_runs(self) -> bool:
        """Whether the pattern has repeats, optional steps or `=>`."""
        states = self.automaton.states
        has_ends = any(state.accepts is not None for state in states)
        has_nexts = any(item.follows for state in states for item in state.transitions)
        return has_ends or has_nexts or any(term.group is not None for term in self.terms)

    @property
    def key_names(self) -> tuple[str, ...]:
        """The keys' names in order."""
        return tuple(key.name for key in self.keys)

    def time_sources(self) -> tuple[tuple[str, Expression], ...]:
        """Event types whose events carry a source time, with its expression; each pair once."""
        readers = [reader for item in self.inputs for reader in (item, item.heartbeat) if reader is not None]
        pairs = ((reader.event, reader.time_from) for reader in readers if reader.time_from is not None)
        return tuple(dict.fromkeys(pairs))

    def action(self, name: str) -> Action:
        """The query's own action of that name; KeyError if there is none."""
        return _named(self.actions, name)


@dataclass(frozen=True, slots=True)
class Stopped:
    """An instance that does not run, because its values leave a window or a wait without length.

    `reason`: for people.
    """

    query: str
    instance: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A set of queries over a set of event types, with unique names and titles.

    `stopped`: instances that do not run; each is reported once, by an output of kind `error`.
    """

    events: tuple[EventType, ...]
    queries: tuple[QueryPlan, ...]
    stopped: tuple[Stopped, ...] = ()

    def event(self, name: str) -> EventType:
        """The event type of that name; KeyError if there is no such type."""
        return _named(self.events, name)

    def without_annotations(self) -> Plan:
        """All that engines need; plans of earlier versions have no more."""
        events = (EventType(event.name, event.fields, event.actions) for event in self.events)
        return replace(self, events=tuple(events))

    def with_failing_nulls(self) -> Plan:
        """The same where a null that is used fails."""
        return replace(self, queries=tuple(replace(query, nulls_fail=True) for query in self.queries))

    def without_told(self) -> Plan:
        """The same where results do not have the metadata of their query."""
        return replace(self, queries=tuple(replace(query, shows_metadata=False) for query in self.queries))

    def earlier(self) -> tuple[Plan, ...]:
        """What earlier releases made of the same text, the latest first."""
        without = self.without_routes()
        told = without.without_told()
        return *([] if without is self else [without]), told, told.with_failing_nulls()

    def by_rules_of(self, known: Mapping[str, QueryPlan]) -> Plan:
        """The same with the rules that the texts of these names have."""
        queries = (
            replace(query, nulls_fail=rules.nulls_fail, shows_metadata=rules.shows_metadata)
            if (rules := known.get(query.name)) is not None
            else query
            for query in self.queries
        )
        return replace(self, queries=tuple(queries))

    def without_routes(self) -> Plan:
        """The same where a routed event is an output only."""
        if not any(query.routes for query in self.queries):
            return self
        return replace(self, queries=tuple(replace(query, routes=()) for query in self.queries))

    def time_sources(self) -> tuple[tuple[str, Expression], ...]:
        """As `QueryPlan.time_sources`, over all queries."""
        return tuple(dict.fromkeys(pair for query in self.queries for pair in query.time_sources()))

    def query(self, title: str) -> QueryPlan:
        """The query of that title (`QueryPlan.title`); KeyError if there is no such query."""
        return _by_title(self.queries)[title]


_BY_TITLE: dict[int, tuple[tuple[QueryPlan, ...], dict[str, QueryPlan]]] = {}
"""By the identity of a plan's queries: one of thousands is asked for with each table of matches."""

_MOST_BY_TITLE = 16


def _by_title(queries: tuple[QueryPlan, ...]) -> dict[str, QueryPlan]:
    known = _BY_TITLE.get(id(queries))
    if known is None or known[0] is not queries:
        known = queries, {query.title: query for query in reversed(queries)}
        if len(_BY_TITLE) >= _MOST_BY_TITLE:
            _BY_TITLE.clear()
        _BY_TITLE[id(queries)] = known
    return known[1]


def known(number: Duration | Count) -> int:
    """A duration or count of an instance, as a number."""
    assert isinstance(number, int), "the plan's parameters have values before it runs"
    return number


def expression_to_dict(expression: Expression) -> dict[str, Any]:
    """Plain data for the expression; equal for equal expressions."""
    encoded: dict[str, Any] = _CODEC.encode(expression)
    return encoded


def plain_field(expression: Expression | None) -> str | None:
    """The field's name, if the expression is only a field of its event."""
    return expression.field if isinstance(expression, expressions.FieldOf) else None


ADDED: Mapping[type, Mapping[str, Any]] = {
    QueryPlan: {
        "selects": (),
        "skip": None,
        "finds_all": False,
        "edition": 0,
        "starts": None,
        "ends": None,
        "nulls_fail": True,
        "at_most": None,
        "shows_metadata": False,
        "routes": (),
        "tables": (),
    },
    Input: {"new": None, "optional_keys": (), "role": None},
    Wait: {"most": 1},
    Term: {"sides": (), "group": None, "may_be_empty": False, "side": ()},
    Between: {"middle": ()},
    State: {"accepts": None},
    Transition: {"follows": False, "also": ()},
    Table: {"place": ""},
    EventType: {"time_from": None, "heartbeat": None, "out_of_order": False},
}
"""By class, the fields that later versions have added, with their defaults.

Version 5: those of event types; version 6: `nulls_fail`; version 7: `new` and `at_most`;
version 8: `shows_metadata`; version 9: `optional_keys` and `routes`; version 10: `tables`, `role`
and `also`; version 4: all others.
"""

_CLASSES: tuple[type, ...] = (
    *expressions.NODES,
    *(Print, Log, Send, Emit, Route, Assign, Evaluate, If, IfPresent, While, For, Break, Continue, Return),
    *(
        Action,
        Field,
        EventType,
        Table,
        Parameter,
        Heartbeat,
        TimePolicy,
        NewBy,
        Input,
        Term,
        Wait,
        Between,
        Where,
        Within,
        Without,
        Gap,
    ),
    *(Select, Skip, MatchLimit, Every, Key, QueryPlan, Stopped, Plan, Automaton, State, Transition),
)

_CODEC = Codec(_CLASSES, ADDED)

_FIELDS = {kind: tuple(item.name for item in fields(kind)) for kind in _CLASSES}

_OLD_FIELDS = {
    kind: tuple(item.name for item in fields(kind) if item.name not in ADDED.get(kind, {})) for kind in _CLASSES
}
"""By class, the fields that plans of the first version have, too."""


def to_dict(plan: Plan) -> dict[str, Any]:
    """Plain data that JSON can hold.

    Checkpoints compare it, so a plan without additions has to stay as it was.
    """
    return {"version": _version(plan), "plan": _CODEC.encode(plan)}


def _version(plan: Plan) -> int:
    if any(query.tables or query.has_roles for query in plan.queries):
        return PLAN_VERSION
    if any(query.optional_keys or query.routes for query in plan.queries):
        return FED_VERSION
    if any(query.shows_metadata for query in plan.queries):
        return TOLD_VERSION
    if any(query.remembers for query in plan.queries) or _has_new_parts(plan.queries):
        return VALUES_VERSION
    if not all(query.nulls_fail for query in plan.queries):
        return NULLS_VERSION
    if plan != plan.without_annotations():
        return ANNOTATED_VERSION
    return ADDED_VERSION if any(map(_uses_additions, plan.queries)) else FIRST_VERSION


def _uses_additions(part: Any) -> bool:
    """Whether a part of a plan is a `Gap`, or has a field of `ADDED` that is not the default."""
    kind = type(part)
    if kind in _WITHOUT_PARTS:  # of most parts: a plan may have thousands of queries
        return False
    if isinstance(part, tuple):
        return any(map(_uses_additions, part))
    if kind is Gap:
        return True
    if any(getattr(part, name) != default for name, default in ADDED.get(kind, {}).items()):
        return True
    return any(_uses_additions(getattr(part, name)) for name in _OLD_FIELDS.get(kind, ()))


def _has_new_parts(part: Any) -> bool:
    """Whether a part of a plan is an `is null`, or a list as a parameter."""
    kind = type(part)
    if kind in _WITHOUT_PARTS:
        return False
    if isinstance(part, tuple):
        return any(map(_has_new_parts, part))
    if kind is expressions.Unary and part.operator == "is null":
        return True
    if kind is Parameter:
        return bool(part.type.kind is Kind.SEQUENCE)
    return any(_has_new_parts(getattr(part, name)) for name in _FIELDS.get(kind, ()))


_WITHOUT_PARTS = frozenset({type(None), bool, int, float, str, Type})


def from_dict(data: Mapping[str, Any]) -> Plan:
    """The inverse of `to_dict`.

    Raises PlanVersionError for a plan of another version, `WrongPart` for a damaged one.
    """
    version = data.get("version")
    if type(version) is not int:
        raise WrongPart("expected an integer, found something else").inside("version")
    if version not in range(FIRST_VERSION, PLAN_VERSION + 1):
        known = f"versions {FIRST_VERSION} to {PLAN_VERSION}"
        raise PlanVersionError(f"plan of version {version}; this release reads {known}")
    plan = _CODEC.decode(data.get("plan"))
    if not isinstance(plan, Plan):
        raise WrongPart("it is not a plan")
    return plan


def _named(items: tuple[Any, ...], name: str) -> Any:
    for candidate in items:
        if candidate.name == name:
            return candidate
    raise KeyError(name)

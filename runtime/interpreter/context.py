"""The context of an evaluation: events, keys, selects and variables in scope; limits and work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from querylang.dataclass import dataclass, field
from querylang.plan.expression import Aggregate, Kind, Type
from querylang.plan.library import TIME_FORMAT
from querylang.plan.model import Action, EventType, Plan, QueryPlan
from runtime.interpreter.values import (
    Dictionary,
    Event,
    LimitError,
    Location,
    TableContent,
    Value,
    World,
    default_value,
)

MOST_STEPS = 1_000_000
"""Iterations of loops and calls of actions that one match, or one condition, may run."""

MOST_BYTES = 200_000_000
"""Bytes that one match, or one condition, may make or work on (`runtime.interpreter.context`)."""

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

    @property
    def looks_up(self) -> bool:
        """Whether something is looked up in tables beside the stream."""
        return any(query.tables for query in self._queries)

    def event_type(self, name: str) -> EventType:
        """The event type of that name; KeyError if the plan has none."""
        return self._events[name]

    def action(self, event: str | None, name: str) -> Action:
        """An action of an event type, or (None) of the query; KeyError if there is none."""
        return self._actions[event, name]

    def table(self, name: str) -> TableContent:
        """What the table of that name holds; KeyError if no query looks something up in it."""
        for query in self._queries:
            for table in query.tables:
                if table.name == name:
                    assert table.content is not None, "tables are loaded before a plan runs"
                    content: TableContent = table.content
                    return content
        raise KeyError(name)


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
    as_of: when the candidate's latest event has arrived, µs; None = nothing is looked up
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
    as_of: int | None = None
    depth: int = 0
    invoke: Callable[[Action, Sequence[Value], Context], Value] = no_actions


# How much work a call of a method is, in bytes: what it reads and what it makes.
#
# Counted before the method runs, from its arguments alone, so that the count is the same on every
# machine. It is an estimate that is never far too low: a method that would take long, or hold much,
# costs much.

PART = 64
"""Bytes of an element of a sequence, an entry of a dictionary or a field of an event."""

NODE = 32
"""Bytes of one operator or call, whatever its operands are."""

OUTPUT = 10_000
"""Bytes of one output beside its text."""

_POINTER = 8
_PARSED = 32
_PARSER = 300
_SLOW = 4_096
"""Bytes of a function of decimals that computes many digits."""

Cost = Callable[..., int]


def text_bytes(text: str) -> int:
    """The bytes of a text: one per character if all are ASCII, else four."""
    return len(text) if text.isascii() else 4 * len(text)


def value_bytes(value: Value, most: int) -> int:
    """The bytes of a value with all that it holds; the count stops when it is above `most`.

    A part that the value refers to several times counts each time, because whoever walks the value
    visits it each time.
    """
    total, unseen = 0, [value]
    while unseen and total <= most:
        match unseen.pop():
            case str() as text:
                total += text_bytes(text)
            case list() as items:
                total += PART * len(items)
                unseen.extend(items if total <= most else ())
            case Dictionary() as dictionary:
                total += PART * len(dictionary)
                entries = dictionary.entries.values() if total <= most else ()
                unseen.extend(part for entry in entries for part in entry)
            case Event() as event:
                total += PART * len(event.values)
                unseen.extend(event.values.values())
            case Location():
                total += PART
            case _:
                total += _POINTER
    return total


def call_bytes(type_: Type, name: str, parts: Sequence[Any], world: World, most: int) -> int:
    """The bytes of calling a method.

    type_, name: as for `runtime.interpreter.containers.bound_method`
    parts: the receiver and the arguments
    most: the count may stop above it
    """
    if name in _WHOLE:
        return value_bytes(parts[0], most)
    if name.startswith(TIME_FORMAT):
        return _SLOW + _texts(most, *parts)
    if "." in name:
        return _PARSER + _PARSED * text_bytes(parts[0]) if name.endswith(("parse", "canParse")) else 0
    if type_.kind is Kind.SEQUENCE and name == "setSize":
        return _set_size(type_, parts[0], parts[1], world, most)
    cost = _COSTS[type_.kind].get(name)
    return 0 if cost is None else cost(most, *parts)


def _set_size(type_: Type, sequence: list[Any], size: int, world: World, most: int) -> int:
    added = max(0, size - len(sequence))
    return added * (PART + value_bytes(default_value(type_.of[0], world), most)) if added else 0


def compared_bytes(left: Value, right: Value, most: int) -> int:
    """The bytes of comparing two values."""
    if isinstance(left, str) and isinstance(right, str):
        return min(len(left), len(right))
    if isinstance(left, list | Dictionary | Event):
        return value_bytes(left, 4 * most) // 4
    return 0


_WHOLE = frozenset({"toString", "clone"})
"""Methods of all types that walk the whole value."""


def _texts(_most: int, *texts: Any) -> int:
    return sum(text_bytes(text) for text in texts if isinstance(text, str))


def _by_pattern(_most: int, text: str, pattern: str, *others: str) -> int:
    # Linear in the text, and for a long pattern in both.
    return text_bytes(text) * (16 + len(pattern) // 16) + PART * len(pattern) + _texts(0, *others)


def _replaced(_most: int, text: str, old: str, new: str) -> int:
    made = text.count(old) * text_bytes(new) if old else 0
    return 2 * text_bytes(text) + made


def _split(_most: int, separator: str, text: str) -> int:
    pieces = text.count(separator) + 1 if separator else len(text)
    return text_bytes(text) + PART * pieces


def _tokenized(_most: int, separators: str, text: str) -> int:
    rest = text.translate(dict.fromkeys(map(ord, separators)))
    return 2 * text_bytes(text) + PART * (len(text) - len(rest) + 1 + len(separators))


def _join(_most: int, separator: str, texts: Sequence[str]) -> int:
    return _texts(0, *texts) + (text_bytes(separator) + _POINTER) * len(texts)


def _joined(most: int, sequence: Sequence[Value], separator: str) -> int:
    return value_bytes([*sequence], most) + text_bytes(separator) * len(sequence)


def _look_through(most: int, sequence: Sequence[Value], *_others: Value) -> int:
    return value_bytes([*sequence], 4 * most) // 4


def _sorted(most: int, sequence: Sequence[Value]) -> int:
    return 4 * value_bytes([*sequence], most)


def _moved(_most: int, sequence: Sequence[Value], *_others: Value) -> int:
    return PART + _POINTER * len(sequence)


def _key(most: int, _dictionary: Dictionary, key: Value, *_others: Value) -> int:
    return value_bytes(key, most)


def _entry(most: int, _dictionary: Dictionary, key: Value, *_others: Value) -> int:
    return PART + value_bytes(key, most)


def _entries(most: int, dictionary: Dictionary) -> int:
    return 2 * PART * len(dictionary) + sum(value_bytes(key, most) for key, _ in dictionary.entries.values())


def _slow(_most: int, *_values: Value) -> int:
    return _SLOW


_STRING: Mapping[str, Cost] = {
    **dict.fromkeys(("contains", "find", "toUpper", "toLower", "ltrim", "rtrim", "toFloat", "toDecimal"), _texts),
    **dict.fromkeys(("startsWith", "endsWith"), lambda _most, _text, part: text_bytes(part)),
    "findFrom": lambda _most, text, part, start: max(0, len(text) - start) + text_bytes(part),
    **dict.fromkeys(("matches", "search", "groupSearch", "replace"), _by_pattern),
    **dict.fromkeys(("like", "likeIgnoreCase"), _by_pattern),
    **dict.fromkeys(("equalsIgnoreCase", "inNetwork"), _texts),
    "replaceAll": _replaced,
    "split": _split,
    "tokenize": _tokenized,
    "join": _join,
}

_COSTS: Mapping[Kind, Mapping[str, Cost]] = {
    **{kind: {} for kind in Kind},
    Kind.DECIMAL: dict.fromkeys(("pow", "sqrt", "exp", "ln", "log", "log10"), _slow),
    Kind.STRING: _STRING,
    Kind.SEQUENCE: {
        "contains": _look_through,
        "indexOf": _look_through,
        "append": lambda _most, _sequence, _value: PART,
        "appendSequence": lambda _most, _sequence, more: PART * len(more),
        "insert": _moved,
        "remove": _moved,
        "reverse": _moved,
        "sort": _sorted,
        "join": _joined,
    },
    Kind.DICTIONARY: {
        **dict.fromkeys(("hasKey", "getOr", "getOrDefault", "remove"), _key),
        **dict.fromkeys(("add", "getOrAdd", "getOrAddDefault"), _entry),
        **dict.fromkeys(("keys", "values"), _entries),
    },
    Kind.EVENT: {
        "getFieldValues": lambda most, event: value_bytes(event, most),
        "getFieldNames": lambda _most, event: PART * len(event.values),
        "getFieldTypes": lambda _most, event: PART * len(event.values),
    },
}
"""By kind of receiver and method: the bytes of a call. What is missing takes the same time for all
values."""

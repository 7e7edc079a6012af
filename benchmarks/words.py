"""Each word of the language in a condition over two events, beside `a.v < b.v`: where are the cliffs?

Operators, methods and aggregates come from the tables of the language, so that none is forgotten; clauses and patterns
are written here. One core, a table in memory to a table of matches, over the same stream and window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from time import process_time

import numpy as np
import pyarrow as pa

import ensue
from benchmarks.embedded import significant
from querylang.plan import library
from querylang.plan.expression import Kind, Type
from querylang.plan.library import Method

_FIELDS = "integer k; float v; integer n; decimal d; string s; boolean f; sequence<float> xs;"
_QUERY = """
event A {{ {fields} action near(B b) returns boolean {{ return v - b.v < 0.1 and b.v - v < 0.1; }} }}
event B {{ {fields} }}
query Q {{
    inputs {{ A() key k {window}; B() key k {window}; }}
    {find}
}}
"""
BASE = "a.v < b.v"
_WINDOW = "within 30 seconds"
_SPACING = 300
"""Microseconds from one event to the next."""

_FIELD = {
    Kind.INTEGER: "n",
    Kind.FLOAT: "v",
    Kind.DECIMAL: "d",
    Kind.STRING: "s",
    Kind.BOOLEAN: "f",
    Kind.SEQUENCE: "xs",
}
_OF_BOTH = {
    Kind.INTEGER: "(a.n - b.n)",
    Kind.FLOAT: "(a.v - b.v)",
    Kind.DECIMAL: "(a.d - b.d)",
    Kind.STRING: "(a.s + b.s)",
    Kind.BOOLEAN: "(a.f and b.f)",
    Kind.SEQUENCE: "[a.v, b.v]",
    Kind.DICTIONARY: "({a.n: b.v})",
    Kind.OPTIONAL: "optional<float>(a.v - b.v)",
    Kind.LOCATION: "location(a.v, a.v, b.v, b.v)",
}
"""By kind of value: one that two events make."""

_CALLED = {
    Type.INTEGER: "b.n",
    Type.FLOAT: "b.v",
    Type.DECIMAL: "b.d",
    Type.STRING: "b.s",
    Type.parse("sequence<string>"): "[b.s]",
    Type.parse("sequence<float>"): "[b.v]",
    Type.parse("location"): "location(0.0, 0.0, b.v, b.v)",
}
"""By type of a parameter: what is given."""

_TEXTS = {
    "like": '"x*"',
    "inNetwork": '"10.0.0.0/8"',
    "matches": '"x.*"',
    "search": '"x"',
    "groupSearch": '"(x)"',
    "replace": '"x", b.s',
}
"""Arguments where a text has a form."""

_RECEIVERS = tuple(
    Type.parse(text)
    for text in (
        "integer",
        "float",
        "decimal",
        "string",
        "boolean",
        "sequence<float>",
        "dictionary<integer,float>",
        "optional<float>",
        "location",
    )
)


@dataclass(frozen=True, slots=True)
class Word:
    """What is measured: its group, its name, and the text behind the inputs.

    window: of both inputs
    """

    group: str
    name: str
    find: str
    window: str = _WINDOW

    @property
    def query(self) -> str:
        """The query's text, with its event types."""
        return _QUERY.format(fields=_FIELDS, window=self.window, find=self.find)


_PATTERNS = {
    "or": "find A as a -> (B as b or B as c) where a.v < 0.5",
    "and": f"find A as a and B as b where {BASE}",
    "=>": f"find A as a => B as b where {BASE}",
    "+": f"find A as a+ -> B as b where {BASE}",
    "{2,3}": f"find A as a {{2,3}} -> B as b where {BASE}",
    "?": "find A as c -> A as a? -> B as b where c.v < b.v",
    "+ consecutive": f"find A as a+ consecutive -> B as b where {BASE}",
    "group": f"find (A as a -> A as c) {{2}} -> B as b where {BASE}",
    "prev": "find A as a+ consecutive => B as b where a.v < prev(a).v",
    "last(run)": "find A as a+ consecutive => B as b where last(a).v < b.v",
    "sum(run)": "find A as a+ consecutive => B as b where sum(a.v) < b.v",
    "prev and last(run), not consecutive": "find A as a {3,} -> B as b where a.v > prev(a).v and last(a).v < b.v",
    "run at the end": "find A as a {3,} where a.v > prev(a).v",
    "within": f"find A as a -> B as b where {BASE} within 10 seconds",
    "within between": f"find A as a -> B as b where {BASE} within 10 seconds between (a b)",
    "without": f"find A as a -> B as b where {BASE} without A as x where x.v > 0.9 between (a b)",
    "without about the match": f"find A as a -> B as b where {BASE} without A as x where x.v > b.v between (a b)",
    "wait before": f"find wait(5 seconds) as t -> A as a -> B as b where {BASE}",
    "wait between": f"find A as a -> wait(5 seconds) as t -> B as b where {BASE}",
    "wait behind ->": f"find A as a -> B as b -> wait(5 seconds) as t where {BASE}",
    "wait behind =>": f"find A as a => B as b -> wait(5 seconds) as t where {BASE}",
    "wait behind a repeat": "find A as c -> B as b+ -> wait(5 seconds) as t where c.v < last(b).v",
    "wait with without": "find A as a -> wait(5 seconds) as t without B as b where b.v > a.v",
    "wait behind => with without": "find A as a => A as c -> wait(5 seconds) as t without B as b where b.v > a.v",
    "wait that repeats": f"find A as a -> B as b -> wait(5 seconds) as t {{1,3}} where {BASE}",
    "find all": f"find all A as a -> B as b where {BASE}",
    "after match skip past last event": f"find A as a -> B as b where {BASE} after match skip past last event",
    "after match skip to first": f"find A as a -> B as b where {BASE} after match skip to first b",
    "at most": f"find A as a -> B as b where {BASE} at most 1 per 1 minute by b.n",
    "action": "find A as a -> B as b where a.near(b)",
    "select": f"find A as a -> B as b where {BASE} select a.v + b.v as both",
    "select of an event": f"find A as a -> B as b where {BASE} select a as one",
    "find every": f"find every A as a -> B as b where {BASE} select count() as m",
    "find every with a wait between": f"find every A as a -> wait(5 seconds) as t -> B as b where {BASE} select count() as m",
    "having": f"find every A as a -> B as b where {BASE} select count() as m having m > 2",
}
"""Patterns and clauses: each name with what follows the inputs."""

_SLOW = 100_000
"""Events per second; a word that is slower is not asked for more than a trial."""

_WINDOWS = {
    "retain": "retain 10",
    "with unique": f"{_WINDOW} with unique n",
    "retain with unique": "retain 10 with unique n",
    "new by": f"{_WINDOW} new by n within 1 minute",
}

_ARGUMENTS = {"nth": "{0}, 1", "percentile": "{0}, 50.0", "wavg": "{0}, b.v"}


def words() -> tuple[Word, ...]:
    """All of them, `a.v < b.v` first."""
    return (Word("base", BASE, _where(BASE)), *_operators(), *_methods(), *_aggregates(), *_clauses())


def _where(condition: str) -> str:
    return f"find A as a -> B as b where {condition}"


def _operators() -> Iterator[Word]:
    for kind in (Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL, Kind.STRING, Kind.BOOLEAN):
        type_ = Type(kind)
        for operator in library.BINARY_OPERATORS:
            result = library.binary_result(operator, type_, type_)
            if result is not None:
                text = f"(a.{_FIELD[kind]} {operator} b.{_FIELD[kind]})"
                yield Word("operator", f"{operator} of {kind.value}", _where(_asked(text, result)))
        for operator in library.UNARY_OPERATORS:
            result = library.unary_result(operator, type_)
            if result is not None:
                text = f"({operator} {_OF_BOTH[kind]})"
                yield Word("operator", f"{operator} (one side) of {kind.value}", _where(_asked(text, result)))


def _methods() -> Iterator[Word]:
    for receiver in _RECEIVERS:
        for method in library.METHODS:
            if receiver.kind in method.kinds and method.result is not None:
                yield _method(method, receiver)


def _method(method: Method, receiver: Type) -> Word:
    signature = method.on(receiver)
    given = [_CALLED[item] for item in signature.parameters[: signature.required]]
    arguments = _TEXTS.get(method.name, ", ".join(given))
    if method.name in ("formatFixed", "formatScientific"):
        arguments = "2"
    assert signature.result is not None, "the others can only be statements"
    text = f"{_OF_BOTH[receiver.kind]}.{method.name}({arguments})"
    return Word("method", f"{method.name} of {receiver.kind.value}", _where(_asked(text, signature.result)))


def _asked(text: str, type_: Type) -> str:
    """A condition about a value."""
    match type_.kind:
        case Kind.BOOLEAN:
            return text
        case Kind.INTEGER:
            return f"{text} > 0"
        case Kind.FLOAT:
            return f"{text} > 0.0"
        case Kind.DECIMAL:
            return f"{text} > 0.0d"
        case Kind.STRING:
            return f'{text} > "m"'
        case Kind.SEQUENCE | Kind.DICTIONARY:
            return f"{text}.size() > 1"
        case Kind.OPTIONAL:
            return f"not {text}.empty()"
        case _:
            return f"{text}.inside(location(0.0, 0.0, b.v, b.v))"


def _aggregates() -> Iterator[Word]:
    for name, rule in library.AGGREGATES.items():
        about = _ARGUMENTS.get(name, "{0}" if rule.required or name == "count" else "")
        for field in ("v", "n", "s") if rule.takes[0] is None else ("v",):
            text = f"{name}({about.format(f'a.{field}')})"
            find = f"find every A as a -> B as b where {BASE} select {text} as m"
            yield Word("aggregate over two names", text, find, "retain 10")
            own = text.replace("b.v", "a.v")
            yield Word("aggregate over one name", own, f"find every A as a select {own} as m", "retain 10")
    for name in ("first", "last"):
        yield Word("aggregate over one name", f"{name}(a)", f"find every A as a select {name}(a) as m", "retain 10")


def _clauses() -> Iterator[Word]:
    for name, find in _PATTERNS.items():
        yield Word("pattern or clause", name, find)
    for name, window in _WINDOWS.items():
        yield Word("pattern or clause", name, _where(BASE), window)


@dataclass(frozen=True, slots=True)
class Spoken:
    """Events per second of a word, and what part that is of the rate of `a.v < b.v`."""

    group: str
    name: str
    events: int
    rate: float
    part: float
    matches: int


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    events, tried: of a word, and of one that is slow
    of_key: how many of them each key has
    most: so many words of each group at most; None = all
    """

    events: int
    tried: int
    of_key: int
    most: int | None = None


def measure(size: Size) -> list[Spoken]:
    """Each word, `a.v < b.v` first."""
    found: list[Spoken] = []
    taken: Counter[str] = Counter()
    rehearse(size)
    for word in words():
        taken[word.group] += 1
        if size.most is None or taken[word.group] <= size.most:
            found.append(_measured(word, size, found[0].rate if found else None))
    return found


_REHEARSED = ("=>", "wait with without", "wait behind => with without", "find all", "find every")
"""Patterns and clauses that have all kernels together, with those of `find every` over one name."""


def rehearse(size: Size) -> None:
    """Loads the machine code of the kernels, which few events would not be worth."""
    own = Word("base", "sum", "find every A as a select sum(a.v) as m", "retain 10")
    patterns = [word for word in _clauses() if word.name in _REHEARSED]
    for word in (words()[0], Word("base", "+", _where("a.v + b.v > 0.0")), own, *patterns):
        _replayed(word, size.events, size.of_key)


def _measured(word: Word, size: Size, base: float | None) -> Spoken:
    events = size.tried
    # The first time may load machine code.
    seconds, matches = min(_replayed(word, events, size.of_key) for _ in range(2))
    if events < size.events and events / seconds > _SLOW:
        events = size.events
        seconds, matches = min(_replayed(word, events, size.of_key) for _ in range(2))
    rate = events / seconds
    return Spoken(word.group, word.name, events, rate, significant(1.0 if base is None else rate / base), matches)


def _replayed(word: Word, count: int, of_key: int) -> tuple[float, int]:
    """Seconds of processor time, and how many matches there were."""
    queries, table = ensue.load(word.query), stream(count, max(1, count // of_key))
    started = process_time()
    result = ensue.replay(queries, table)
    return process_time() - started, len(result.matches)


def stream(count: int, keys: int) -> pa.Table:
    """So many events of A and B; the same for the same arguments."""
    random = np.random.default_rng(count)
    values, numbers = random.random(count), random.integers(0, 100, count)
    texts = pa.array([f"x{number}" for number in range(100)])
    return pa.table(
        {
            "at": pa.array(np.arange(count) * _SPACING).cast(pa.timestamp("us", "UTC")),
            "event": pa.array(["A", "B"]).take(pa.array(random.integers(0, 2, count))),
            "k": random.integers(0, keys, count),
            "v": values,
            "n": numbers,
            "d": pa.array([Decimal(number) / 8 for number in range(100)], pa.decimal128(38, 18)).take(
                pa.array(numbers)
            ),
            "s": texts.take(pa.array(random.integers(0, 100, count))),
            "f": random.random(count) < 0.5,
            "xs": pa.array([[0.1, 0.5], [0.9]]).take(pa.array(random.integers(0, 2, count))),
        }
    )

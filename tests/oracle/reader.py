"""Reads inputs and finds from text, so that examples are written in tests as in the language."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from tests.oracle.conditions import Condition, Where, Within, Without
from tests.oracle.events import SECOND, Value
from tests.oracle.expressions import (
    COMPARISONS,
    Constant,
    End,
    Field,
    Fold,
    IsNull,
    Node,
    Not,
    OneOf,
    Operation,
    Prev,
    Whole,
)
from tests.oracle.inputs import Filter, Input
from tests.oracle.query import Query, Select, Skip
from tests.oracle.shapes import Both, Chain, Either, Link, Repeat, Repeated, Shape, Step, Wait

_WORD = re.compile(r'\s*(->|=>|<=|>=|!=|\d+\.\d+|\d+|\w+|"[^"]*"|.)')
FOLDS = ("count", "sum", "avg", "min", "max")
SIGNS = {"?": (0, 1), "+": (1, None), "*": (0, None)}
OPERATORS = (("or",), ("xor",), ("and",), COMPARISONS, ("+", "-"), ("*", "/", "%"))
"""Those that bind loosest first."""


def read_find(text: str, inputs: str, keys: Sequence[str] = ()) -> Query:
    """A find without the word `find`, over inputs such as `A; B retain 3`."""
    return Reader(text).query(tuple(read_input(item) for item in inputs.split(";")), tuple(keys))


def read_input(text: str) -> Input:
    """`A`, or `A(v > 1) within 30 retain 3 with unique s wait 20`; `within` is 100 seconds unless something is said."""
    reader = Reader(text)
    item = reader.input()
    assert not reader.words, f"{reader.words} behind an input: keys are of the query"
    return item


class Reader:
    """Takes words from the front."""

    def __init__(self, text: str) -> None:
        self.words = [word for word in _WORD.findall(text) if word.strip()]

    def next(self) -> str:
        return self.words[0] if self.words else ""

    def take(self, *expected: str) -> str:
        assert self.words, f"something of {expected} is missing"
        word = self.words.pop(0)
        assert not expected or word in expected, f"{word!r} where {expected} should be, before {self.words}"
        return word

    def takes(self, *words: str) -> bool:
        """Takes these words if they come next."""
        if tuple(self.words[: len(words)]) != words:
            return False
        del self.words[: len(words)]
        return True

    def seconds(self) -> int:
        return round(float(self.take()) * SECOND)

    def input(self) -> Input:
        type_ = self.take()
        filters = list[Filter]()
        if self.takes("("):
            while not self.takes(")"):
                self.takes(",")
                filters.append(Filter(self.take(), self.take(*COMPARISONS), self.constant()))
        within = self.seconds() if self.takes("within") else None
        retain = int(self.take()) if self.takes("retain") else None
        unique = self.take() if self.takes("with", "unique") else None
        wait = self.seconds() if self.takes("wait") else None
        default = 100 * SECOND if within is None and retain is None else within
        return Input(type_, tuple(filters), default, retain, unique, wait)

    def query(self, inputs: tuple[Input, ...], keys: tuple[str, ...]) -> Query:
        finds_all = self.takes("all")
        leading = self.wait() if self.next() == "wait" else None
        if leading:
            self.take("->")
        pattern, trailing = self.chain()
        conditions, selects, skip = list[Condition](), list[Select](), None
        while self.words:
            match self.take("where", "within", "without", "select", "after"):
                case "where":
                    conditions.append(Where(self.expression()))
                case "within":
                    conditions.append(Within(self.seconds(), self.between()))
                case "without":
                    conditions.append(self.without())
                case "select":
                    selects.append(self.select())
                case _:
                    skip = self.skip()
        return Query(inputs, pattern, tuple(conditions), keys, leading, trailing, tuple(selects), skip, finds_all)

    def without(self) -> Without:
        type_ = self.take()
        self.take("as")
        name = self.take()
        return Without(type_, name, self.expression() if self.takes("where") else None, self.between())

    def select(self) -> Select:
        expression = self.expression()
        self.take("as")
        return Select(expression, self.take())

    def skip(self) -> Skip:
        self.take("match")
        self.take("skip")
        if self.takes("past", "last", "event"):
            return Skip()
        self.take("to")
        return Skip(self.take("first", "last"), self.take())

    def between(self) -> tuple[str, ...]:
        names = list[str]()
        if self.takes("between"):
            self.take("(")
            while not self.takes(")"):
                names.append(self.take())
        return tuple(names)

    def wait(self) -> Wait:
        self.take("wait")
        self.take("(")
        length = self.seconds()
        self.take(")")
        self.take("as")
        name = self.take()
        most = 1
        if self.takes("{", "1", ","):
            most = int(self.take())
            self.take("}")
        return Wait(length, name, most)

    def chain(self) -> tuple[Shape, Wait | None]:
        """A chain, and the wait at its end."""
        first, links = self.binary("or", self.conjunction, Either), list[Link]()
        while self.next() in {"->", "=>"}:
            sign, wait = self.take(), None
            if self.next() == "wait":
                wait = self.wait()
                if not self.takes("->"):
                    return self.chained(first, links), wait
            links.append(Link(sign, self.binary("or", self.conjunction, Either), wait))
        return self.chained(first, links), None

    @staticmethod
    def chained(first: Shape, links: Sequence[Link]) -> Shape:
        return Chain(first, tuple(links)) if links else first

    def binary(self, word: str, side: Callable[[], Shape], kind: type[Both | Either]) -> Shape:
        shape = side()
        while self.takes(word):
            shape = kind(shape, side())
        return shape

    def conjunction(self) -> Shape:
        return self.binary("and", self.primary, Both)

    def primary(self) -> Shape:
        if self.takes("("):
            inside, wait = self.chain()
            assert wait is None, "a wait stands between two steps"
            self.take(")")
        else:
            type_ = self.take()
            self.take("as")
            inside = Step(type_, self.take())
        repeat = self.repeat()
        if repeat is None:
            return inside
        assert isinstance(inside, Step | Chain), "a repeated group is a chain"
        return Repeated(inside, repeat)

    def repeat(self) -> Repeat | None:
        sign = self.next()
        if sign not in {"{", *SIGNS}:
            return None
        self.take()
        if sign in SIGNS:
            least, most = SIGNS[sign]
            return Repeat(least, most, self.takes("consecutive"), sign)
        least = most = int(self.take())
        if self.takes(","):
            most = None if self.next() == "}" else int(self.take())
        self.take("}")
        return Repeat(least, most, self.takes("consecutive"))

    def expression(self, level: int = 0) -> Node:
        if level == len(OPERATORS):
            return self.term()
        if level == OPERATORS.index(COMPARISONS) and self.takes("not"):
            return Not(self.expression(level))
        left = self.expression(level + 1)
        while self.next() in OPERATORS[level]:
            left = Operation(self.take(), left, self.expression(level + 1))
        return self.test(left) if level == OPERATORS.index(COMPARISONS) else left

    def test(self, inside: Node) -> Node:
        """What may follow a value: `is null`, `in [...]`, and their opposites."""
        if self.takes("is"):
            is_denied = self.takes("not")
            self.take("null")
            return IsNull(inside, is_denied)
        is_denied = self.takes("not")
        if not self.takes("in"):
            return inside
        self.take("[")
        values = [self.constant()]
        while self.takes(","):
            values.append(self.constant())
        self.take("]")
        return OneOf(inside, tuple(values), is_denied)

    def term(self) -> Node:
        if self.takes("("):
            inside = self.expression()
            self.take(")")
            return inside
        if self.next() == "-" or not self.next()[:1].isalpha() or self.next() in {"true", "false"}:
            return Constant(self.constant())
        name = self.take()
        if self.takes("."):
            return Field(name, self.field())
        if not self.takes("("):
            return Whole(name)
        inside = self.expression()
        self.take(")")
        if name in FOLDS:
            return Fold(name, inside)
        assert isinstance(inside, Whole), f"{name} is asked of a name"
        self.take(".")
        return Prev(inside.name, self.field()) if name == "prev" else End(name, inside.name, self.field())

    def field(self) -> str:
        name = self.take()
        return "getTime()" if name == "getTime" and self.takes("(", ")") else name

    def constant(self) -> Value:
        negative = self.takes("-")
        word = self.take()
        if word in {"true", "false"}:
            return word == "true"
        if word.startswith('"'):
            return str(json.loads(word))
        number = float(word) if "." in word else int(word)
        return -number if negative else number

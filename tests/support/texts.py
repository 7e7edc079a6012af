"""Random legal query files: every construct of the grammar, names of any kind, comments between any two words.

The parser must accept them without a mistake. They are legal for the grammar only: a checker would refuse types and names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from querylang.syntax.lexer import KEYWORDS

T = TypeVar("T")
Words = list[str]

_NAMES = (
    "a",
    "b",
    "w1",
    "Withdrawal",
    "card",
    "x_y",
    "été",
    "_one",
    "#find",
    "#day",
    "#where",
    "#float",
    "key",
    "time",
    "to",
    "the_country_of_the_withdrawal_before",
)
_QUALIFIED_ONLY = ("A", "B", "Withdrawal", "#query", "#time", "Ünder")
_STRINGS = (
    '""',
    '"x"',
    '"say \\"hi\\""',
    '"back\\\\slash"',
    '"a\\nb\\tc\\rd"',
    '"é ☃ 𝄞"',
    '"// no comment"',
    '"/* nor this */"',
)
_INTEGERS = ("0", "3", "007", "9223372036854775807", "0xFf")
_FLOATS = ("1.5", ".5", "1e3", "2.50", "1E-7", "3.0e+2", "1.E-2")
_DECIMALS = ("1.5d", "3d", "1e2d", ".5d")
_SIMPLE_TYPES = ("boolean", "integer", "float", "decimal", "string", "location")
_UNITS = ("days", "hour", "min", "seconds", "msec")
_COMMENTS = ("// note\n", "//\n", '// é ☃ "x\n', "/* one */", "/**/", "/* two\n   lines */", "/* a; } */", "// b { (\n")
_SPACES = (" ", " ", " ", "\n", "\n", "\n\n", "\n\n\n\n", "\t", "  \n    ", "\r\n")


class Texts:
    """One random file after the other. `size`: how deep expressions, patterns and statements are nested at most."""

    def __init__(self, random: Random, size: int = 4) -> None:
        self._random = random
        self._size = size

    # Whole texts

    def text(self, *, with_comments: bool = True) -> str:
        """A legal file."""
        return self.spaced(self.file(), with_comments=with_comments)

    def spaced(self, words: Words, *, with_comments: bool = True) -> str:
        """The words with white space, line ends and comments between them, and none where none is needed."""
        parts = [self._between("\n", "", with_comments=with_comments)]
        for before, after in zip(words, [*words[1:], ""], strict=True):
            parts += [before, self._between(before, after, with_comments=with_comments)]
        return "".join(parts)

    def file(self) -> Words:
        """The words of a file."""
        package = ["package", *self._qualified(), ";"] if self._maybe() else []
        using = self._some(lambda: ["using", *self._qualified(), *([".", "*"] if self._maybe() else []), ";"], 0, 2)
        items = self._some(lambda: self._pick(self.event_type, self.query), 1, 3)
        return [*package, *using, *items, *(self.bare_body() if self._maybe() else [])]

    # Event types

    def event_type(self) -> Words:
        """An event definition."""
        members = self._some(lambda: self._pick(self._field, self._field, self._constant, self.action), 0, 4)
        return [*self._some(self._annotation, 0, 2), "event", self._name(), "{", *members, "}"]

    def _annotation(self) -> Words:
        brackets = self._pick(list, lambda: ["(", ")"], lambda: ["(", *self._listed(self._literal, 1, 3), ")"])
        return ["@", *self._qualified(), *brackets]

    def _field(self) -> Words:
        return [*self.type(), self._name(), ";"]

    def _constant(self) -> Words:
        return ["constant", *self.type(), self._name(), ":=", *self._signed(), ";"]

    def action(self) -> Words:
        """An action of an event type or a query."""
        parameters = self._listed(lambda: [*self.type(), self._name()], 0, 3)
        returns = ["returns", *self.type()] if self._maybe() else []
        return ["action", self._name(), "(", *parameters, ")", *returns, *self.block(2)]

    def type(self, depth: int = 2) -> Words:
        """A type as it may be written."""
        if depth == 0 or self._maybe():
            return self._pick(lambda: [self._of(_SIMPLE_TYPES)], self._qualified)
        word = self._of(("sequence", "optional", "dictionary"))
        inner = [*self.type(depth - 1), ",", *self.type(depth - 1)] if word == "dictionary" else self.type(depth - 1)
        return [word, "<", *inner, ">"]

    # Queries

    def query(self) -> Words:
        """A query with a name."""
        return ["query", self._name(), "{", *self._sections(), *self._some(self.action, 0, 2), "}"]

    def bare_body(self) -> Words:
        """A query without a name: only at the end of a file, unless it has a block."""
        return [*self._sections(), *self._some(self.action, 0, 1)]

    def _sections(self) -> Words:
        strings = self._some(lambda: [self._string(), ":", self._string(), *([","] if self._maybe() else [])], 0, 3)
        metadata = ["metadata", "{", *strings, "}"] if self._maybe() else []
        parameters = ["parameters", "{", *self._some(self._parameter, 0, 3), "}"] if self._maybe() else []
        opening, closing = self._of((("{", "}"), ("<", ">")))
        inputs = ["inputs", opening, *self._some(self.input, 1, 3), closing]
        return [*metadata, *parameters, *inputs, *self.find()]

    def _parameter(self) -> Words:
        return [*self.type(), self._name(), *([":=", *self._signed()] if self._maybe() else []), ";"]

    def input(self) -> Words:
        """One input of a query."""
        filters = self._listed(self._filter, 0, 3)
        keys = ["key", *self._listed(self._key, 1, 3)] if self._maybe() else []
        within = ["within", *self._duration()] if self._maybe() else []
        retain = ["retain", *self._sum()] if self._maybe() else []
        unique = ["with", "unique", *self._listed(self._key_source, 1, 2)] if self._maybe() else []
        clock = self._clock() if self._maybe() else []
        return [*self._event_type(), "(", *filters, ")", *keys, *within, *retain, *unique, *clock, ";"]

    def _filter(self) -> Words:
        field = [self._name()] if self._maybe() else []
        operator = self._of(("=", "<", "<=", ">", ">="))
        range_ = [self._of(("[", "(")), *self.expression(2), ":", *self.expression(2), self._of(("]", ")"))]
        return self._pick(
            lambda: [*field, "=", "*"] if field else ["*"],
            lambda: [*field, operator, *self._sum()],
            lambda: [*field, "in", *range_] if field else range_,
            lambda: [*field, "=", *self._sum()] if field else self._sum(),
        )

    def _key(self) -> Words:
        return [*self._key_source(), *(["as", self._name()] if self._maybe() else [])]

    def _key_source(self) -> Words:
        return [self._name(), *(["(", *self._listed(self.expression, 0, 2), ")"] if self._maybe() else [])]

    def _clock(self) -> Words:
        brackets = ["(", ")"] if self._maybe() else []
        source = ["time", "from", self._name(), *brackets] if self._maybe() else []
        return [*source, "wait", *self._duration(), *(["or", *self._event_type()] if self._maybe() else [])]

    def _duration(self) -> Words:
        literal = self._some(lambda: [self._of((*_INTEGERS, *_FLOATS)), self._of(_UNITS)], 1, 3)
        return self._pick(lambda: literal, self._sum)

    # Find

    def find(self) -> Words:
        """A pattern with its clauses and its end."""
        ending = self._pick(self.block, lambda: [";"], list)
        first = [*self._wait(), "->"] if self._maybe() else []
        last = ["->", *self._wait(), *self._of(([], [], ["{", "1", ",", "7", "}"]))] if self._maybe() else []
        pattern = [*first, *self.pattern(self._size), *last]
        grouped = ["{", *pattern, "}"] if self._random.random() < 0.05 else pattern
        every = self._of(([], ["every"], ["all"]))
        return ["find", *every, *grouped, *self._some(self.clause, 0, 4), *self._skip(), *ending]

    def _skip(self) -> Words:
        target = ["past", "last", "event"] if self._maybe() else ["to", self._of(("first", "last")), self._name()]
        return ["after", "match", "skip", *target] if self._maybe() else []

    def _wait(self) -> Words:
        return ["wait", "(", *self._duration(), ")", *(self._naming() if self._maybe() else [])]

    def pattern(self, depth: int) -> Words:
        """A pattern without a wait before and behind it."""
        if depth == 0 or self._maybe():
            return [*self._event_type(), *(["(", ")"] if self._maybe() else []), *self._naming(), *self._repeat()]
        wait = ["->", *self._wait(), "->"]
        link = self._of((["->"], ["=>"], ["or"], ["and"], wait))
        joined = [*self.pattern(depth - 1), *link, *self.pattern(depth - 1)]
        return ["(", *joined, ")", *self._repeat()] if self._maybe() else joined

    def _repeat(self) -> Words:
        signs = (["+"], ["*"], ["?"], ["{", "2", "}"], ["{", "0", ",", "}"], ["{", "1", ",", "3", "}"])
        often = self._of(([], [], [], *signs))
        return [*often, "consecutive"] if often and self._maybe() else often

    def clause(self) -> Words:
        """One clause of a `find`."""
        return self._pick(
            lambda: ["where", *self.expression()],
            lambda: ["within", *self._duration(), *self._between_names()],
            lambda: ["without", *self._event_type(), *self._naming(), *self._condition(), *self._between_names()],
            lambda: ["select", *self.expression(), *self._naming()],
            lambda: ["having", *self.expression()],
        )

    def _condition(self) -> Words:
        return ["where", *self.expression()] if self._maybe() else []

    def _between_names(self) -> Words:
        return ["between", "(", *self._some(lambda: [self._name()], 2, 4), ")"] if self._maybe() else []

    def _naming(self) -> Words:
        return [self._of(("as", ":")), self._name()]

    # Statements

    def block(self, depth: int | None = None) -> Words:
        """Statements in braces."""
        left = self._size if depth is None else depth
        return ["{", *self._some(lambda: self.statement(left), 0, 4), "}"]

    def statement(self, depth: int) -> Words:
        """Any statement."""
        flat = (
            lambda: ["print", *self.expression(), ";"],
            lambda: ["log", *self.expression(), *(["at", "INFO"] if self._maybe() else []), ";"],
            lambda: ["send", *self.expression(), "to", *self.expression(), ";"],
            lambda: ["emit", *self.expression(), *(["to", *self.expression()] if self._maybe() else []), ";"],
            lambda: ["route", *self.expression(), ";"],
            lambda: [*self.type(), self._name(), *([":=", *self.expression()] if self._maybe() else []), ";"],
            lambda: [*self._target(), ":=", *self.expression(), ";"],
            lambda: [*self._postfix(2), ";"],
            lambda: [self._of(("break", "continue", "return")), ";"],
            lambda: ["return", *self.expression(), ";"],
            self._vendor_send,
        )
        if depth == 0:
            return self._pick(*flat)
        nested = (
            lambda: self._if(depth),
            lambda: ["ifpresent", *self._listed(self._binding, 1, 2), *self.block(depth - 1), *self._else(depth)],
            lambda: ["while", *self.expression(), *self.block(depth - 1)],
            lambda: ["for", self._name(), "in", *self.expression(), *self.block(depth - 1)],
            lambda: self.block(depth - 1),
            lambda: ["%", "custom", "(", *self._listed(self._item, 0, 2), ")", *self.block(depth - 1)],
        )
        return self._pick(*flat, *nested)

    def _if(self, depth: int) -> Words:
        then = ["then"] if self._maybe() else []
        ending = ["else", *self._if(depth - 1)] if self._maybe() and depth > 1 else self._else(depth)
        return ["if", *self.expression(), *then, *self.block(depth - 1), *ending]

    def _else(self, depth: int) -> Words:
        return ["else", *self.block(depth - 1)] if self._maybe() else []

    def _binding(self) -> Words:
        return self._pick(lambda: [self._name()], lambda: [*self.expression(), "as", self._name()])

    def _target(self) -> Words:
        return self._pick(
            lambda: [self._name()],
            lambda: [*self._postfix(1), ".", self._member()],
            lambda: [*self._postfix(1), "[", *self.expression(1), "]"],
        )

    def _vendor_send(self) -> Words:
        fields = self._listed(lambda: ['"f"', ":", self._in_string()], 0, 2)
        items = [
            ['"eventType"', ":", '"pkg.T"'],
            *([['"title"', ":", self._string()]] if self._maybe() else []),
            *([['"channel"', ":", self._in_string()]] if self._maybe() else []),
            *([['"fields"', ":", "{", *fields, "}"]] if self._maybe() else []),
        ]
        commas = [word for item in items for word in (",", *item)]
        return ["%", "send", "(", *commas[1:], ")", ";"]

    def _in_string(self) -> str:
        text = self.spaced(self.expression(2), with_comments=False)
        return (
            '"' + "".join({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r"}.get(sign, sign) for sign in text) + '"'
        )

    def _item(self) -> Words:
        return [self._string(), ":", self._string()]

    # Expressions

    def expression(self, depth: int | None = None) -> Words:
        """Any expression."""
        left = self._size - 1 if depth is None else depth
        if left > 0 and self._random.random() < 0.08:
            return self._chain(left)
        if left <= 0 or self._maybe():
            return self._sum(left)
        return self._pick(
            lambda: [*self._boolean(left), self._of(("and", "or", "xor")), *self._boolean(left)],
            lambda: ["not", *self._boolean(left)],
            lambda: [*self._sum(left - 1), self._of(("=", "!=", "<", "<=", ">", ">=")), *self._sum(left - 1)],
        )

    def _chain(self, depth: int) -> Words:
        """Operands enough for several lines, of one looseness or of many."""
        operators = self._of((("and",), ("or", "and", "xor"), ("+",), ("+", "-", "*", "/", "%")))
        operand = self._boolean if "and" in operators else self._postfix
        rest = self._some(lambda: [self._of(operators), *operand(depth - 1)], 4, 12)
        return [*operand(depth - 1), *rest]

    def _boolean(self, depth: int) -> Words:
        return self.expression(depth - 1) if self._maybe() else ["(", *self.expression(depth - 1), ")"]

    def _sum(self, depth: int = 2) -> Words:
        if depth <= 0 or self._maybe():
            return self._postfix(depth)
        return self._pick(
            lambda: [*self._sum(depth - 1), self._of(("+", "-", "*", "/", "%")), *self._sum(depth - 1)],
            lambda: ["-", *self._sum(depth - 1)],
            lambda: ["+", self._of((*_INTEGERS, *_FLOATS, *_DECIMALS))],
            lambda: ["new", *self.type()],
            lambda: ["{", *self._listed(lambda: [*self.expression(depth - 1), ":", *self.expression(1)], 0, 2), "}"],
            lambda: ["(", *self.expression(depth - 1), ")"],
        )

    def _postfix(self, depth: int) -> Words:
        if depth <= 0 or self._maybe():
            return self._pick(lambda: [self._name()], self._literal)
        most = 9 if self._random.random() < 0.1 else 2
        arguments = self._listed(lambda: self.expression(depth - 1), 0, most)
        before = self._postfix(depth - 1)
        return self._pick(
            lambda: [*before, ".", self._member()],
            lambda: [*before, ".", self._member(), "(", *arguments, ")"],
            lambda: [*before, "[", *self.expression(depth - 1), "]"],
            lambda: [self._name(), "(", *arguments, ")"],
            lambda: [".", *self._qualified(), "(", *arguments, ")"],
            lambda: ["[", *arguments, "]"],
            lambda: ["(", *self.expression(depth - 1), ")"],
            lambda: [self._of(_SIMPLE_TYPES), ".", self._member()],
            lambda: [self._of(_SIMPLE_TYPES), ".", self._member(), "(", *arguments, ")"],
            lambda: ["sequence", "<", *self.type(1), ">", "(", *arguments, ")"],
        )

    def _literal(self) -> Words:
        return [self._of((*_STRINGS, *_INTEGERS, *_FLOATS, *_DECIMALS, "true", "false"))]

    def _signed(self) -> Words:
        return self._pick(
            self._literal, lambda: ["-", *self._literal()], lambda: ["+", self._of((*_INTEGERS, *_FLOATS, *_DECIMALS))]
        )

    # Names

    def _name(self) -> str:
        return self._of(_NAMES)

    def _member(self) -> str:
        return self._of((*_NAMES, "find", "where", "float"))

    def _qualified(self) -> Words:
        first = self._of(_QUALIFIED_ONLY)
        return [first, *[word for _ in range(self._random.randrange(3)) for word in (".", self._member())]]

    def _event_type(self) -> Words:
        return [*(["."] if self._random.random() < 0.1 else []), *self._qualified()]

    def _string(self) -> str:
        return self._of(_STRINGS)

    # Chance

    def _between(self, before: str, after: str, *, with_comments: bool) -> str:
        parts = [self._of(_SPACES)]
        while with_comments and self._random.random() < 0.12:
            parts += [self._of(_COMMENTS), self._of(("", *_SPACES))]
        can_touch = before[-1:] in set("(){};,") or after[:1] in set("(){};,")
        return "" if len(parts) == 1 and can_touch and self._maybe() else "".join(parts)

    def _maybe(self) -> bool:
        return self._random.random() < 0.5

    def _of(self, choices: Sequence[T]) -> T:
        return choices[self._random.randrange(len(choices))]

    def _pick(self, *makers: Callable[[], Words]) -> Words:
        return makers[self._random.randrange(len(makers))]()

    def _some(self, maker: Callable[[], Words], least: int, most: int) -> Words:
        return [word for _ in range(self._random.randint(least, most)) for word in maker()]

    def _listed(self, maker: Callable[[], Words], least: int, most: int) -> Words:
        made = [maker() for _ in range(self._random.randint(least, most))]
        return [word for number, item in enumerate(made) for word in ([",", *item] if number else item)]


assert all(name.removeprefix("#") in KEYWORDS or name.startswith("#") or name.isidentifier() for name in _NAMES)

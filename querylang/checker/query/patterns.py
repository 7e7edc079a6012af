"""Check the pattern of a query: its terms, its waits, which terms may stay unset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import assert_never

from querylang.checker.diagnostics import Diagnostics
from querylang.checker.names.schema import EventSchema
from querylang.checker.query.durations import Constants
from querylang.checker.query.inputs import CheckedInputs
from querylang.checker.query.pattern_tree import Both, Either, Pattern, Sequence, TermOf
from querylang.errors import Mistake
from querylang.plan.expression import EventOf, Expression
from querylang.plan.model import Term, Wait
from querylang.plan.value_types import Type
from querylang.syntax import ast

DEEPEST_PATTERN = 100
"""Levels of nested `->`, `and` and `or`; all that reads patterns may recurse."""

WIDEST_PATTERN = 100
"""Parts of one `and` or `or`."""

MOST_WAYS = 20_000
"""Limit for the ways to bind the latest event, and for the states; `and` multiplies both."""

_JOINS: dict[str, type[Sequence[Pattern] | Both[Pattern] | Either[Pattern]]] = {
    "->": Sequence,
    "and": Both,
    "or": Either,
}


@dataclass(frozen=True, slots=True)
class NamedTerm:
    """A named event.

    - `input`: None: its type is not an input, which is reported.
    - `sides`: for each `or` above it, by number, the side on which it is.
    """

    name: ast.Name
    input: int | None
    schema: EventSchema | None
    sides: Mapping[int, int]

    def is_opposite(self, other: NamedTerm) -> bool:
        """Whether the two are on different sides of an `or`."""
        return any(other.sides.get(number, side) != side for number, side in self.sides.items())


@dataclass(frozen=True, slots=True)
class CheckedPattern:
    """A pattern.

    - `tree`: None: it contains no event.
    - `is_whole`: its names are known.
    """

    terms: tuple[NamedTerm, ...] = ()
    tree: Pattern | None = None
    leading: Wait | None = None
    trailing: Wait | None = None
    waits: tuple[ast.PatternWait, ...] = ()
    is_whole: bool = False

    @property
    def plan_terms(self) -> tuple[Term, ...]:
        """The terms for the plan, without those that have no input."""
        return tuple(
            Term(term.name.text, term.input, bool(term.sides)) for term in self.terms if term.input is not None
        )

    @property
    def has_all_inputs(self) -> bool:
        """Whether each term has an input."""
        return all(term.input is not None for term in self.terms)

    @property
    def wait_names(self) -> dict[str, ast.PatternWait]:
        """The named waits."""
        return {wait.name.text: wait for wait in self.waits if wait.name is not None}

    def index_of(self, name: str) -> int | None:
        """The index of the term of that name."""
        return next((index for index, term in enumerate(self.terms) if term.name.text == name), None)

    def events(self, *, with_optionals: bool = False) -> dict[str, Expression | None]:
        """What the terms' names mean.

        `with_optionals`: one under an `or` is an optional, as in a block.
        """
        found: dict[str, Expression | None] = {}
        for index, term in enumerate(self.terms):
            type_ = None if term.schema is None else term.schema.type
            if type_ is not None and with_optionals and term.sides:
                type_ = Type.optional(type_)
            found.setdefault(term.name.text, None if type_ is None else EventOf(type_, index))
        return found


def check_pattern(pattern: ast.Pattern | ast.Broken, inputs: CheckedInputs, constants: Constants) -> CheckedPattern:
    """The pattern with its waits."""
    if isinstance(pattern, ast.Broken):
        return CheckedPattern()
    diagnostics = constants.diagnostics
    if _is_too_deep(pattern):
        diagnostics.report(Mistake.PATTERN_TOO_DEEP, pattern.span, limit=DEEPEST_PATTERN)
        return CheckedPattern()
    parts = _chained(pattern)
    leading, trailing = _ends(parts)
    inner = parts[leading is not None : len(parts) - (trailing is not None)]
    builder = _Builder(inputs, diagnostics)
    trees = [builder.tree(part, "->", {}) for part in inner]
    if not builder.terms and not builder.is_wrong:
        diagnostics.report(Mistake.NO_EVENT, pattern.span)
    if len(builder.terms) > ast.MOST_TERMS:
        diagnostics.report(Mistake.PATTERN_TOO_LONG, pattern.span, limit=ast.MOST_TERMS)
        return CheckedPattern()
    tree = _joined("->", trees)
    waits = tuple(wait for wait in (leading, trailing) if wait is not None)
    checked = CheckedPattern(
        terms=tuple(builder.terms),
        tree=tree,
        leading=None if leading is None else _wait(leading, constants),
        trailing=None if trailing is None else _wait(trailing, constants),
        waits=(*waits, *builder.misplaced),
        is_whole=True,
    )
    if tree is not None and checked.has_all_inputs and _is_too_large(tree, checked):
        diagnostics.report(Mistake.PATTERN_TOO_LARGE, pattern.span)
    return checked


@dataclass(slots=True)
class _Builder:
    """Numbers the terms in text order."""

    inputs: CheckedInputs
    diagnostics: Diagnostics
    terms: list[NamedTerm] = field(default_factory=list)
    misplaced: list[ast.PatternWait] = field(default_factory=list)
    ors: int = 0

    @property
    def is_wrong(self) -> bool:
        """Whether a misplaced wait was reported."""
        return bool(self.misplaced)

    def tree(self, node: ast.Pattern, operator: str, sides: Mapping[int, int]) -> Pattern | None:
        """A part of the pattern under `operator`; None: it has no term."""
        match node:
            case ast.PatternTerm():
                index, schema = self.inputs.find(node.event)
                self.terms.append(NamedTerm(node.name, index, schema, sides))
                return TermOf(len(self.terms) - 1)
            case ast.PatternWait():
                self._misplaced(node, operator)
                return None
            case ast.PatternJoin(operator="->"):
                inner = "->" if operator == "->" else operator
                return _joined("->", [self.tree(part, inner, sides) for part in _chained(node)])
            case ast.PatternJoin(operator="or", parts=parts):
                number = self.ors = self.ors + 1
                trees = [self.tree(part, "or", {**sides, number: side}) for side, part in enumerate(parts)]
                return _joined("or", trees)
            case ast.PatternJoin(operator=word, parts=parts):
                return _joined(word, [self.tree(part, word, sides) for part in parts])
        assert_never(node)

    def _misplaced(self, node: ast.PatternWait, operator: str) -> None:
        mistake = Mistake.WAIT_PLACE if operator == "->" else Mistake.WAIT_JOINED
        facts = {} if operator == "->" else {"operator": operator}
        self.diagnostics.report(mistake, node.span, **facts)
        self.misplaced.append(node)


def _ends(parts: list[ast.Pattern]) -> tuple[ast.PatternWait | None, ast.PatternWait | None]:
    """The leading and the trailing wait."""
    first, last = parts[0], parts[-1]
    leading = first if isinstance(first, ast.PatternWait) else None
    trailing = last if isinstance(last, ast.PatternWait) and len(parts) > 1 else None
    return leading, trailing


def _wait(node: ast.PatternWait, constants: Constants) -> Wait | None:
    duration = constants.duration(node.duration, "`wait`")
    return None if duration is None else Wait(duration, None if node.name is None else node.name.text)


def _joined(operator: str, parts: list[Pattern | None]) -> Pattern | None:
    """The parts that exist, joined; a single one is returned as it is."""
    found = tuple(part for part in parts if part is not None)
    if len(found) <= 1:
        return found[0] if found else None
    return _JOINS[operator](found)


def _chained(pattern: ast.Pattern) -> list[ast.Pattern]:
    """The parts of a `->` chain: `(a -> b) -> c` is `a -> b -> c`."""
    parts: list[ast.Pattern] = []
    waiting = [pattern]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.PatternJoin) and part.operator == "->":
            waiting += reversed(part.parts)
        else:
            parts.append(part)
    return parts


def parts_of(pattern: ast.Pattern | ast.Broken) -> Iterator[ast.Pattern]:
    """A pattern and all its parts in text order, however deep."""
    waiting: list[ast.Pattern] = [] if isinstance(pattern, ast.Broken) else [pattern]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, ast.PatternJoin):
            waiting += reversed(part.parts)


def _is_too_deep(pattern: ast.Pattern) -> bool:
    level: list[ast.Pattern] = [pattern]
    for _ in range(DEEPEST_PATTERN):
        level = [inner for part in level if isinstance(part, ast.PatternJoin) for inner in part.parts]
        if not level:
            return False
    return True


def _is_too_large(tree: Pattern, pattern: CheckedPattern) -> bool:
    """Whether the pattern is so large that building its automaton must not be tried."""
    if _width(tree) > WIDEST_PATTERN or _positions(tree) > MOST_WAYS:
        return True
    return sum(_ways_by_input(tree, pattern).values()) > MOST_WAYS


def _width(tree: Pattern) -> int:
    """The most parts of one `and` or `or`."""
    match tree:
        case TermOf():
            return 1
        case Sequence(parts=parts):
            return max(map(_width, parts))
        case Both(parts=parts) | Either(parts=parts):
            return max(len(parts), *map(_width, parts))
    assert_never(tree)


def _positions(tree: Pattern) -> int:
    """A lower bound for the number of different remainders of the pattern."""
    match tree:
        case TermOf():
            return 2
        case Sequence(parts=parts):
            return 1 + sum(_positions(part) - 1 for part in parts)
        case Both(parts=parts):
            return min(prod(map(_positions, parts)), MOST_WAYS + 1)
        case Either(parts=parts):
            return max(map(_positions, parts))
    assert_never(tree)


def _ways_by_input(tree: Pattern, pattern: CheckedPattern) -> dict[int, int]:
    """In how many ways the latest event may be bound, by its input; counted up to MOST_WAYS + 1."""
    match tree:
        case TermOf(index=index):
            number = pattern.terms[index].input
            assert number is not None, "patterns without a mistake are counted"
            return {number: 1}
        case Sequence(parts=parts):
            return _ways_by_input(parts[-1], pattern)
        case Both(parts=parts) | Either(parts=parts):
            total: dict[int, int] = {}
            for part in parts:
                for number, ways in _ways_by_input(part, pattern).items():
                    before = total.get(number, 0)
                    total[number] = min(before + ways + before * ways, MOST_WAYS + 1)
            return total
    assert_never(tree)

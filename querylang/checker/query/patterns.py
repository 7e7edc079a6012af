"""Check the pattern of a query: its terms, its waits, which terms may stay unset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from math import prod
from typing import assert_never

from querylang.checker.checked import Diagnostics
from querylang.checker.namespaces import EventSchema
from querylang.checker.query.durations import Constants
from querylang.checker.query.inputs import CheckedInputs
from querylang.checker.query.remainders import Both, Either, Pattern, Repeated, Sequence, Served, TermOf, may_be_empty
from querylang.dataclass import dataclass, field, replace
from querylang.errors import Mistake
from querylang.plan.expression import EventOf, Expression, Type
from querylang.plan.model import Gap, Term, Wait
from querylang.plan.text import repeat_text, wait_text
from querylang.syntax import ast

DEEPEST_PATTERN = 100
"""Levels of nested `->`, `and` and `or`; all that reads patterns may recurse."""

WIDEST_PATTERN = 100
"""Parts of one `and` or `or`."""

MOST_WAYS = 20_000
"""Limit for the ways to bind the latest event, and for the states; `and` multiplies both."""

_JOINS: dict[str, type[Both[Pattern] | Either[Pattern]]] = {
    "and": Both,
    "or": Either,
}


@dataclass(frozen=True, slots=True)
class RepeatOf:
    """How a term is repeated.

    - `group`: the number of its repeat, if it is a run; the terms of one repeated group have the
      same.
    - `is_optional`: by the sign `?`: it is one event or unset.
    - `may_be_empty`: it may take no event.
    """

    group: int | None = None
    is_optional: bool = False
    may_be_empty: bool = False

    @property
    def is_run(self) -> bool:
        """Whether its name means a sequence of events."""
        return self.group is not None

    @classmethod
    def of(cls, node: ast.PatternRepeat, number: int) -> RepeatOf:
        """That of the terms in a repeat."""
        is_optional = node.sign == "?"
        return cls(None if is_optional else number, is_optional, node.least == 0)


NO_REPEAT = RepeatOf()


@dataclass(frozen=True, slots=True)
class NamedTerm:
    """A named event.

    - `input`: None: its type is not an input, which is reported.
    - `sides`: for each `or` above it, by number, the side on which it is.
    - `repeat`: how often it is repeated.
    """

    name: ast.Name
    input: int | None
    schema: EventSchema | None
    sides: Mapping[int, int]
    repeat: RepeatOf = NO_REPEAT

    @property
    def is_optional(self) -> bool:
        """Whether it may be unset."""
        return bool(self.sides) or self.repeat.is_optional

    def is_opposite(self, other: NamedTerm) -> bool:
        """Whether the two are on different sides of an `or`."""
        return any(other.sides.get(number, side) != side for number, side in self.sides.items())


@dataclass(frozen=True)
class CheckedPattern:
    """A pattern.

    - `tree`: None: it contains no event.
    - `gaps`: its waits between steps, with their nodes.
    - `is_whole`: its names are known.
    """

    terms: tuple[NamedTerm, ...] = ()
    tree: Pattern | None = None
    leading: Wait | None = None
    trailing: Wait | None = None
    gaps: tuple[tuple[Gap, ast.PatternWait], ...] = ()
    waits: tuple[ast.PatternWait, ...] = ()
    is_whole: bool = False

    @cached_property
    def plan_terms(self) -> tuple[Term, ...]:
        """The terms for the plan, without those that have no input."""
        return tuple(
            Term(
                term.name.text,
                term.input,
                term.is_optional,
                group=term.repeat.group,
                may_be_empty=term.repeat.is_run and term.repeat.may_be_empty,
                side=self._side(term) if term.repeat.is_run else (),
            )
            for term in self.terms
            if term.input is not None
        )

    def _side(self, term: NamedTerm) -> tuple[int, ...]:
        """The terms of the innermost side of an `or` on which a term is."""
        if not term.sides:
            return ()
        number, side = list(term.sides.items())[-1]
        return tuple(index for index, other in enumerate(self.terms) if other.sides.get(number) == side)

    @cached_property
    def terms_of_all(self) -> tuple[Term, ...]:
        """The terms of a `find all`, which needs to know the sides of each `or`."""
        pairs = zip(self.plan_terms, self.terms, strict=True)
        return tuple(replace(term, sides=tuple(sorted(named.sides.items()))) for term, named in pairs)

    @cached_property
    def has_all_inputs(self) -> bool:
        """Whether each term has an input."""
        return all(term.input is not None for term in self.terms)

    @cached_property
    def served(self) -> tuple[Served, ...]:
        """By term, what its events have to be; every term has an input."""
        first: dict[str, int] = {}
        for term in sorted(self.terms, key=lambda term: term.input or 0):
            if term.schema is not None and term.input is not None:
                first.setdefault(term.schema.name, term.input)
        return tuple(
            Served(first[term.schema.name], term.input)
            for term in self.terms
            if term.schema is not None and term.input is not None
        )

    @cached_property
    def wait_names(self) -> dict[str, ast.PatternWait]:
        """The named waits."""
        return {wait.name.text: wait for wait in self.waits if wait.name is not None}

    def index_of(self, name: str) -> int | None:
        """The index of the term of that name."""
        return next((index for index, term in enumerate(self.terms) if term.name.text == name), None)

    def events(self, *, with_optionals: bool = False) -> Mapping[str, Expression | None]:
        """What the terms' names mean.

        `with_optionals`: as in a block: what may be unset is an optional, a run is a sequence.
        """
        return self._in_blocks if with_optionals else self._in_conditions

    @cached_property
    def _in_blocks(self) -> dict[str, Expression | None]:
        return self._events(with_optionals=True)

    @cached_property
    def _in_conditions(self) -> dict[str, Expression | None]:
        return self._events(with_optionals=False)

    def _events(self, *, with_optionals: bool) -> dict[str, Expression | None]:
        found: dict[str, Expression | None] = {}
        for index, term in enumerate(self.terms):
            type_ = None if term.schema is None else term.schema.type
            if type_ is not None and with_optionals:
                if term.repeat.is_run:
                    type_ = Type.sequence(type_)
                elif term.is_optional:
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
    parts, nexts = _chain(pattern)
    leading, trailing = _ends(parts)
    _refuse_next_to_wait(parts, nexts, diagnostics)
    for part in parts_of(pattern):
        if isinstance(part, ast.PatternWait) and part.most > 1 and part is not trailing:
            diagnostics.report(Mistake.WAIT_REPEAT_PLACE, part.span)
    if all(isinstance(part, ast.PatternWait) for part in parts):
        diagnostics.report(Mistake.NO_EVENT, pattern.span)
        return CheckedPattern()
    builder = _Builder(inputs, constants)
    tree = builder.chain(parts, nexts, "->", {}, is_whole=True)
    if len(builder.terms) > ast.MOST_TERMS:
        diagnostics.report(Mistake.PATTERN_TOO_LONG, pattern.span, limit=ast.MOST_TERMS)
        return CheckedPattern()
    if tree is not None and not builder.is_wrong and may_be_empty(tree):
        if not builder.has_empty_side:
            diagnostics.report(Mistake.EMPTY_PATTERN, pattern.span)
        return CheckedPattern()
    waits = tuple(wait for wait in (leading, trailing) if wait is not None)
    checked = CheckedPattern(
        terms=tuple(builder.terms),
        tree=tree,
        leading=None if leading is None else _wait(leading, constants),
        trailing=None if trailing is None else _wait(trailing, constants),
        gaps=tuple(builder.gaps),
        waits=(*waits, *builder.between, *(wait for wait in builder.misplaced if wait is not trailing)),
        is_whole=True,
    )
    if tree is not None and checked.has_all_inputs and _is_too_large(tree, checked):
        diagnostics.report(Mistake.PATTERN_TOO_LARGE, pattern.span)
    return checked


@dataclass(slots=True)
class _Builder:
    """Numbers the terms in text order.

    - `gaps`: the waits between steps, with their nodes. `between`: the nodes of all of them, also
      of those without a known duration.
    """

    inputs: CheckedInputs
    constants: Constants
    terms: list[NamedTerm] = field(default_factory=list)
    gaps: list[tuple[Gap, ast.PatternWait]] = field(default_factory=list)
    between: list[ast.PatternWait] = field(default_factory=list)
    misplaced: list[ast.PatternWait] = field(default_factory=list)
    ors: int = 0
    groups: int = 0
    has_empty_side: bool = False

    @property
    def diagnostics(self) -> Diagnostics:
        return self.constants.diagnostics

    @property
    def is_wrong(self) -> bool:
        """Whether a misplaced wait was reported."""
        return bool(self.misplaced)

    def tree(
        self, node: ast.Pattern, operator: str, sides: Mapping[int, int], repeat: RepeatOf = NO_REPEAT
    ) -> Pattern | None:
        """A part of the pattern under `operator`; None: it has no term."""
        match node:
            case ast.PatternTerm():
                index, schema = self.inputs.find(node.event)
                self.terms.append(NamedTerm(node.name, index, schema, sides, repeat))
                return TermOf(len(self.terms) - 1)
            case ast.PatternWait():
                self._misplaced_in(node, operator)
                return None
            case ast.PatternRepeat():
                return self._repeated(node, operator, sides)
            case ast.PatternJoin(operator="->"):
                inner = "->" if operator == "->" else operator
                return self.chain(*_chain(node), inner, sides, repeat)
            case ast.PatternJoin(operator="or", parts=parts):
                number = self.ors = self.ors + 1
                trees = [self.tree(part, "or", {**sides, number: side}) for side, part in enumerate(parts)]
                for part, tree in zip(parts, trees, strict=True):
                    if tree is not None and may_be_empty(tree):
                        self.diagnostics.report(Mistake.EMPTY_SIDE, part.span)
                        self.has_empty_side = True
                return _joined("or", trees)
            case ast.PatternJoin(operator=word, parts=parts):
                return _joined(word, [self.tree(part, word, sides) for part in parts])
        assert_never(node)

    def chain(
        self,
        parts: list[ast.Pattern],
        nexts: list[bool],
        operator: str,
        sides: Mapping[int, int],
        repeat: RepeatOf = NO_REPEAT,
        *,
        is_whole: bool = False,
    ) -> Pattern | None:
        """Parts one after the other, and the waits between them.

        is_whole: they are the whole pattern, which may begin and end with a wait
        """
        steps: list[_Linked] = []
        wait: ast.PatternWait | None = None
        for number, part in enumerate(parts):
            if isinstance(part, ast.PatternWait):
                if number and isinstance(parts[number - 1], ast.PatternWait):
                    self._misplaced(part, Mistake.WAIT_ROW)
                elif number not in {0, len(parts) - 1}:
                    wait = part
                elif not is_whole:
                    self._misplaced_in(part, operator)
                continue
            first = len(self.terms)
            tree = self.tree(part, operator, sides, repeat)
            if tree is not None:
                linked = _Linked(tree, tuple(range(first, len(self.terms))), number > 0 and nexts[number - 1])
                if wait is not None and steps:
                    linked = replace(linked, wait=self._gap(wait, steps[-1], linked))
                steps.append(linked)
            wait = None
        return _sequence(steps)

    def _gap(self, node: ast.PatternWait, before: _Linked, after: _Linked) -> str:
        """Note a wait between two steps; its text."""
        self.between.append(node)
        if may_be_empty(before.tree) or may_be_empty(after.tree):
            self.diagnostics.report(Mistake.WAIT_EMPTY, node.span)
        wait = _wait(node, self.constants)
        if wait is None:
            return ""
        self.gaps.append((Gap(wait.duration, wait.name, before.terms, after.terms), node))
        return wait_text(wait.duration, wait.name)

    def _repeated(self, node: ast.PatternRepeat, operator: str, sides: Mapping[int, int]) -> Pattern | None:
        number = self.groups
        self.groups += 1
        if refuse_repeat(node, self.diagnostics):
            return self.tree(node.inside, operator, sides)
        inside = self.tree(node.inside, operator, sides, RepeatOf.of(node, number))
        if inside is None:
            return None
        return repeated(inside, node.least, node.most, node.sign, is_consecutive=node.is_consecutive)

    def _misplaced_in(self, node: ast.PatternWait, operator: str) -> None:
        """A wait that is first or last in brackets, or a side of an `and` or `or`."""
        if operator == "->":
            self._misplaced(node, Mistake.WAIT_PLACE)
        else:
            self._misplaced(node, Mistake.WAIT_JOINED, operator=operator)

    def _misplaced(self, node: ast.PatternWait, mistake: Mistake, **facts: str) -> None:
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
    return None if duration is None else Wait(duration, None if node.name is None else node.name.text, node.most)


def _joined(operator: str, parts: list[Pattern | None]) -> Pattern | None:
    """The parts that exist, joined; a single one is returned as it is."""
    found = tuple(part for part in parts if part is not None)
    if len(found) <= 1:
        return found[0] if found else None
    return _JOINS[operator](found)


@dataclass(frozen=True, slots=True)
class _Linked:
    """A part of a chain, and what stands before it: `=>`, or the text of a `wait`."""

    tree: Pattern
    terms: tuple[int, ...]
    is_next: bool
    wait: str = ""


def _sequence(parts: list[_Linked]) -> Pattern | None:
    """The parts one after the other; a single one is returned as it is."""
    if len(parts) <= 1:
        return parts[0].tree if parts else None
    waits = tuple(part.wait for part in parts[1:])
    return Sequence(
        tuple(part.tree for part in parts), tuple(part.is_next for part in parts[1:]), waits if any(waits) else ()
    )


def repeated(inside: Pattern, least: int, most: int | None, sign: str, *, is_consecutive: bool) -> Pattern:
    """A repeat; in a consecutive one each event of a group directly follows the one before."""
    if is_consecutive and isinstance(inside, Sequence) and most != 1:
        inside = Sequence(inside.parts, (True,) * len(inside.nexts))
    return Repeated(inside, least, most, sign, is_consecutive)


def _chain(pattern: ast.Pattern) -> tuple[list[ast.Pattern], list[bool]]:
    """The parts of a chain of `->` and `=>`, and by link whether it is `=>`."""
    if isinstance(pattern, ast.PatternJoin) and pattern.operator == "->":
        return list(pattern.parts), [link == "=>" for link in pattern.links]
    return [pattern], []


def _refuse_next_to_wait(parts: list[ast.Pattern], nexts: list[bool], diagnostics: Diagnostics) -> None:
    for left, is_next, right in zip(parts, nexts, parts[1:], strict=False):
        for part in (left, right):
            if is_next and isinstance(part, ast.PatternWait):
                diagnostics.report(Mistake.NEXT_TO_WAIT, part.span)


def parts_of(pattern: ast.Pattern | ast.Broken) -> Iterator[ast.Pattern]:
    """A pattern and all its parts in text order, however deep."""
    waiting: list[ast.Pattern] = [] if isinstance(pattern, ast.Broken) else [pattern]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += reversed(_inside(part))


def _inside(pattern: ast.Pattern) -> tuple[ast.Pattern, ...]:
    match pattern:
        case ast.PatternJoin(parts=parts):
            return parts
        case ast.PatternRepeat(inside=inside):
            return (inside,)
    return ()


def _is_too_deep(pattern: ast.Pattern) -> bool:
    level: list[ast.Pattern] = [pattern]
    for _ in range(DEEPEST_PATTERN):
        level = [inner for part in level for inner in _inside(part)]
        if not level:
            return False
    return True


def _is_too_large(tree: Pattern, pattern: CheckedPattern) -> bool:
    """Whether the pattern is so large that building its automaton must not be tried."""
    if _width(tree) > WIDEST_PATTERN or _positions(tree) > MOST_WAYS:
        return True
    return sum(_ways_by_type(tree, pattern).values()) > MOST_WAYS


def _width(tree: Pattern) -> int:
    """The most parts of one `and` or `or`."""
    match tree:
        case TermOf():
            return 1
        case Repeated(inside=inside):
            return _width(inside)
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
        case Repeated(inside=inside, least=least, most=most):
            return 1 + (_positions(inside) - 1) * max(least, most or 1)
        case Sequence(parts=parts):
            return 1 + sum(_positions(part) - 1 for part in parts)
        case Both(parts=parts):
            return min(prod(map(_positions, parts)), MOST_WAYS + 1)
        case Either(parts=parts):
            return max(map(_positions, parts))
    assert_never(tree)


def _ways_by_type(tree: Pattern, pattern: CheckedPattern) -> dict[int, int]:
    """In how many ways the latest event may be bound, by its type; counted up to MOST_WAYS + 1."""
    match tree:
        case TermOf(index=index):
            return {pattern.served[index].type: 1}
        case Repeated(inside=inside):
            return _ways_by_type(inside, pattern)
        case Sequence(parts=parts):
            return _ways_by_type(parts[-1], pattern)
        case Both(parts=parts) | Either(parts=parts):
            total: dict[int, int] = {}
            for part in parts:
                for number, ways in _ways_by_type(part, pattern).items():
                    before = total.get(number, 0)
                    total[number] = min(before + ways + before * ways, MOST_WAYS + 1)
            return total
    assert_never(tree)


# Repeats: their numbers, and what can be repeated.


def refuse_repeat(node: ast.PatternRepeat, diagnostics: Diagnostics) -> bool:
    """Report what is wrong with a repeat; whether something is."""
    text = repeat_text(node.least, node.most, node.sign, is_consecutive=False).strip()
    mistake = None
    if node.most == 0:
        mistake = Mistake.REPEAT_NEVER
    elif node.most is not None and node.least > node.most:
        mistake = Mistake.REPEAT_BOUNDS
    if mistake is not None:
        diagnostics.report(mistake, node.span, text=text)
        return True
    for part, found in _refused(node.inside):
        diagnostics.report(Mistake.REPEAT_INSIDE, part.span, found=found)
        return True
    return False


def _refused(inside: ast.Pattern) -> Iterator[tuple[ast.Pattern, str]]:
    """The parts of a repeated group that it must not have, and what they are called."""
    match inside:
        case ast.PatternTerm():
            return
        case ast.PatternWait():
            yield inside, "a `wait`"
        case ast.PatternRepeat(inside=ast.PatternJoin()):
            yield inside, "a group"
        case ast.PatternRepeat():
            yield inside, "a repeat"
        case ast.PatternJoin(operator="->", parts=parts):
            for part in parts:
                yield from _refused(part)
        case ast.PatternJoin(operator=operator):
            yield inside, f"`{operator}`"

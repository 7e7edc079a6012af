"""What names mean at one place of a text, and how the parts of type inference ask each other.

None instead of an expression: a mistake was reported, or a type is open (nothing defines it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from querylang.checker.namespaces import ActionSignature, Namespace
from querylang.dataclass import dataclass, field, replace
from querylang.errors import Mistake, QueryError
from querylang.foreign_words import NAMES, hint_of
from querylang.plan.expression import Call, Expression, Kind, Literal, New, Type
from querylang.source import Span
from querylang.syntax import ast

_FOREIGN = {
    "self": "a query is not an event; use the pattern's names and the keys",
    "currentTime": "each replay would give another result; `getTime()` is the time of an event",
}
"""Names of the vendor's larger language that queries cannot use, with the reason."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that an expression may use.

    - `names`: what each name means; None: its type is open or its mistake was reported, and nothing
      more is reported about it. An `or` name in a block is an `EventOf` whose type is an optional.
    - `forbidden`: names that exist but must not be used here, each with its mistake. `names` has
      precedence.
    - `actions`: those that are called without a receiver. `owner`: the event whose actions they
      are; None: the query's.
    - `aggregates`: the scope of an aggregate's arguments, or the mistake of using one here.
    - `unknown`: the mistake of a name that does not exist. `is_whole` False: part of the text could
      not be parsed and may declare names, so unknown names are not reported. `ignored`: unknown
      names that are not reported.
    - `repeats`: what folds and `prev` mean; None: nothing.
    """

    names: Mapping[str, Expression | None]
    forbidden: Mapping[str, Mistake] = field(default_factory=dict)
    actions: Mapping[str, ActionSignature] = field(default_factory=dict)
    owner: Expression | None = None
    aggregates: Scope | Mistake = Mistake.AGGREGATE_PLACE
    unknown: Mistake = Mistake.UNKNOWN_NAME
    is_whole: bool = True
    ignored: frozenset[str] = frozenset()
    repeats: Repeats | None = None

    def missing(self, name: ast.Name, near: Iterable[str] = ()) -> QueryError | None:
        """The mistake of a name that `names` does not have; None: it is not reported.

        `near`: names of other kinds to suggest.
        """
        if name.text in self.forbidden:
            return QueryError.of(self.forbidden[name.text], name.span, name=name.text)
        if name.text in _FOREIGN:
            facts = {"what": f"`{name.text}`", "reason": _FOREIGN[name.text]}
            return QueryError.of(Mistake.NOT_IN_QUERIES, name.span, **facts)
        if not self.is_whole or name.text in self.ignored:
            return None
        mistake = QueryError.of(self.unknown, name.span, name=name.text)
        hint = hint_of(NAMES, name.text)
        return mistake.suggesting(name.text, [*self.names, *near]) if hint is None else mistake.with_hint(hint)

    def has(self, name: str) -> bool:
        """Whether the name exists here, even if forbidden; so it is not the name of a type."""
        return name in self.names or name in self.forbidden

    def with_names(self, names: Mapping[str, Expression | None]) -> Scope:
        """The same scope with more names."""
        return replace(self, names={**self.names, **names})

    def forbidding(self, names: Iterable[str], mistake: Mistake) -> Scope:
        """The same scope where these names exist but must not be used."""
        forbidden = dict.fromkeys(names, mistake)
        kept = {name: value for name, value in self.names.items() if name not in forbidden}
        return replace(self, names=kept, forbidden={**self.forbidden, **forbidden})


# What an expression knows of repeated names: for folds, and for the event before.

PREV = "prev"
"""A name everywhere but before brackets in a condition."""

ENDS = ("first", "last")
FOLDS = (*ENDS, "count", "sum", "avg", "min", "max")


@dataclass(frozen=True, slots=True)
class Run:
    """A repeated name. `may_be_empty`: where it is used it may have no event."""

    name: str
    term: int
    group: int
    may_be_empty: bool


@dataclass(frozen=True, slots=True)
class Repeats:
    """The repeated names of a pattern.

    - `single`: what each name of the pattern means inside a fold: one event.
    - `is_block`: what may have no value is an optional.
    - `before`: by term, those whose events can be directly before; None: `prev` has no meaning
      here, or the pattern has a mistake.
    - `is_prev_usable`: it is a condition.
    """

    runs: Mapping[str, Run] = field(default_factory=dict)
    single: Mapping[str, Expression | None] = field(default_factory=dict)
    is_block: bool = False
    is_prev_usable: bool = False
    before: Callable[[int], frozenset[int] | None] = field(default=lambda _term: None, compare=False)
    event_names: tuple[str | None, ...] = ()

    def run_of(self, term: int) -> Run | None:
        """The run of a term; None: it is one event."""
        return next((run for run in self.runs.values() if run.term == term), None)


# How the parts of type inference ask each other: a protocol, arguments, conversions.


class Inferring(Protocol):
    """Infers the types of expressions in one scope."""

    @property
    def scope(self) -> Scope:
        """The meaning of names."""

    @property
    def namespace(self) -> Namespace:
        """The meaning of names of types."""

    def typed(self, node: ast.Expression, wanted: Type | None = None) -> Expression | None:
        """The typed expression.

        `wanted`: the type of an empty `[]` or `{}`; it converts or refuses nothing.
        """

    def of_type(self, node: ast.Expression, wanted: Type, what: str) -> Expression | None:
        """The typed expression, which must be of this type; `what`: how a message calls it."""

    def within(self, scope: Scope) -> Inferring:
        """The same in another scope."""

    def report(self, mistake: QueryError) -> Expression | None:
        """Report a mistake; return the None that replaces the expression."""


def type_of(value: Expression) -> Type:
    """The type of an expression that has a value."""
    assert value.type is not None, "an expression used as a value has a type"
    return value.type


def fitting(value: Expression, wanted: Type) -> Expression:
    """The value, or what it converts to by itself where that is wanted.

    An optional with the value (`optional<integer> x := 42;`), and the float of an integer literal
    (`float x := 42;`).
    """
    if wanted.kind is Kind.OPTIONAL and value.type != wanted:
        inner = fitting(value, wanted.of[0])
        return New(wanted, (inner,)) if inner.type == wanted.of[0] else value
    is_literal = isinstance(value, Literal) and value.type == Type.INTEGER
    return as_float(value) if is_literal and wanted == Type.FLOAT else value


def as_float(value: Expression) -> Expression:
    """An integer as a float, as `toFloat` converts it; a float as it is."""
    if value.type == Type.FLOAT:
        return value
    if isinstance(value, Literal):
        return Literal(Type.FLOAT, float(value.value))
    return Call(Type.FLOAT, "toFloat", value)


def alike(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """Both sides of an operator; an integer beside a float is a float."""
    if {left.type, right.type} == {Type.INTEGER, Type.FLOAT}:
        return as_float(left), as_float(right)
    return left, right


LONG = 200
"""Operators of one chain from which on it counts as a list of terms and not as nested."""

_CHAINED = ("and", "or", "+")


def flat_chain(node: ast.Expression) -> list[ast.Binary]:
    """The operations of `a or b or c`, in the order of the text; empty = it is something else."""
    chain: list[ast.Binary] = []
    while isinstance(node, ast.Binary) and node.operator in _CHAINED:
        if chain and node.operator != chain[-1].operator:
            break
        chain.append(node)
        node = node.left
    return chain[::-1]


def is_empty_literal(node: ast.Expression) -> bool:
    """Whether it is `[]` or `{}`, whose type only the context can give."""
    return isinstance(node, ast.SequenceLiteral | ast.DictionaryLiteral) and not node.items


def check_untyped(inferring: Inferring, node: ast.Expression) -> Expression | None:
    """Report the mistakes in an expression whose expected type is open."""
    return None if is_empty_literal(node) else inferring.typed(node)


def arguments_of(
    inferring: Inferring,
    name: ast.Name,
    nodes: Sequence[ast.Expression],
    parameters: Sequence[tuple[str, Type | None]],
    required: int | None = None,
) -> tuple[Expression, ...] | None:
    """The arguments of a call; None if one has a mistake or their number is wrong.

    - `parameters`: how a message calls each, and its type; None: open.
    - `required`: how many arguments there must be; None: all.
    """
    least = len(parameters) if required is None else required
    if not least <= len(nodes) <= len(parameters):
        inferring.report(wrong_count(name.span, name.text, least, len(parameters), len(nodes)))
        return None
    values = [
        check_untyped(inferring, node) if type_ is None else inferring.of_type(node, type_, what)
        for node, (what, type_) in zip(nodes, parameters, strict=False)
    ]
    typed = tuple(value for value in values if value is not None)
    return typed if len(typed) == len(values) else None


def wrong_count(span: Span, name: str, least: int, most: int, count: int) -> QueryError:
    """The mistake of a call with too few or too many arguments."""
    number = f"{least}" if least == most else f"{least} to {most}"
    expected = "no arguments" if most == 0 else f"{number} argument{'' if least == most == 1 else 's'}"
    return QueryError.of(Mistake.ARGUMENT_COUNT, span, name=name, expected=expected, count=count)

"""What names mean at one place of a text, except those of event types (`namespaces`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from querylang.checker.names.repeats import Repeats
from querylang.checker.names.schema import ActionSignature
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import Expression
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
        return mistake.suggesting(name.text, [*self.names, *near])

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

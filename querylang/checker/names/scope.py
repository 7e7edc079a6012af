"""What names mean at one place of a text; for event types see `querylang.checker.names.namespaces`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from querylang.checker.names.schema import ActionSignature
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import Expression
from querylang.syntax import ast

_FOREIGN = {
    "self": "it is no event; the pattern's names and the keys are what there is",
    "currentTime": "a replay would give other results; `getTime()` is the time of an event",
}
"""Names of the vendor's larger language to the reason why they stand for nothing."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that an expression may use.

    - `names`: what each stands for; None: its type is open or its mistake is told, nothing more is said about it.
      An `or` name in a block is an `EventOf` whose type is an optional.
    - `refused`: names that are there but not to be used in this place, each with its mistake, whose words may have
      `{name}`. A name of `names` comes first.
    - `actions`: those that are called without a receiver. `owner`: in an action of an event, the event; then they are
      the event's.
    - `aggregates`: the scope of an aggregate's arguments; or the mistake that it is to use one here.
    - `unknown`: the mistake of a name that is not there at all. `is_whole` False: a part of the text that may bring
      names could not be read, so an unknown name is no mistake; the same goes for each of `silent`.
    """

    names: Mapping[str, Expression | None]
    refused: Mapping[str, Mistake] = field(default_factory=dict)
    actions: Mapping[str, ActionSignature] = field(default_factory=dict)
    owner: Expression | None = None
    aggregates: Scope | Mistake = Mistake.AGGREGATE_PLACE
    unknown: Mistake = Mistake.UNKNOWN_NAME
    is_whole: bool = True
    silent: frozenset[str] = frozenset()

    def missing(self, name: ast.Name, near: Iterable[str] = ()) -> QueryError | None:
        """The mistake of a name that `names` does not have; None: there is nothing to say.

        `near`: names of other sorts that may be meant.
        """
        if name.text in self.refused:
            return QueryError.of(self.refused[name.text], name.span, name=name.text)
        if name.text in _FOREIGN:
            facts = {"what": f"`{name.text}`", "reason": _FOREIGN[name.text]}
            return QueryError.of(Mistake.NOT_IN_QUERIES, name.span, **facts)
        if not self.is_whole or name.text in self.silent:
            return None
        mistake = QueryError.of(self.unknown, name.span, name=name.text)
        return mistake.suggesting(name.text, [*self.names, *near])

    def has(self, name: str) -> bool:
        """Whether the name stands for something here, be it refused; so it is no name of a type."""
        return name in self.names or name in self.refused

    def with_names(self, names: Mapping[str, Expression | None]) -> Scope:
        """The same place with more names."""
        return replace(self, names={**self.names, **names})

    def refusing(self, names: Iterable[str], mistake: Mistake) -> Scope:
        """The same place where these names are there but may not be used."""
        refused = dict.fromkeys(names, mistake)
        kept = {name: value for name, value in self.names.items() if name not in refused}
        return replace(self, names=kept, refused={**self.refused, **refused})

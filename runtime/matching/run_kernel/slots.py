"""Conditions about runs as expressions over slots, which a kernel program can evaluate.

A program reads events by slot. The slots of a query are its terms; then one for each event before
that is asked for, and for each first or last event of a run; and last the event of a `without`,
before that any event of the key. A fold becomes a constant: the search computes the fold, and
writes the value in the constant's place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from querylang.plan.expression import (
    Call,
    EndOf,
    EventOf,
    Expression,
    FieldOf,
    Fold,
    Literal,
    MemberOf,
    PrevOf,
    Type,
    rewritten,
    walk,
)
from querylang.plan.model import QueryPlan, Where, Without
from runtime.exact_times import MICROSECONDS
from runtime.matching.kernel.program import Computed, NotForKernel


@dataclass(slots=True)
class Slots:
    """The slots of a query, and the folds of its conditions.

    prevs: by term, the slot of the event before it
    ends: by run and whether it is the first event, its slot
    folds: the constant that stands for each
    """

    query: QueryPlan
    prevs: dict[int, int] = field(default_factory=dict)
    ends: dict[tuple[int, bool], int] = field(default_factory=dict)
    folds: dict[Fold, Computed] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many slots there are."""
        return len(self.query.terms) + len(self.prevs) + len(self.ends) + 1

    def events(self, own: str) -> list[str]:
        """By slot, the type of its event; `own`: that of the last one."""
        named = [self.query.inputs[term.input].event for term in self.query.terms]
        # The event before may be of any type that has the field: `Reader` asks every type.
        return [*named, *(named[0] for _ in (*self.prevs, *self.ends)), own]


def slots_of(query: QueryPlan) -> Slots:
    """All slots, so that each has its number before a program is made."""
    slots = Slots(query)
    nodes = [node for expression in conditions_of(query) for node in walk(expression)]
    terms = len(query.terms)
    for node in nodes:
        if isinstance(node, PrevOf):
            slots.prevs.setdefault(node.term, terms + len(slots.prevs))
    for node in nodes:
        if isinstance(node, EndOf):
            key = node.term, node.function == "first"
            slots.ends.setdefault(key, terms + len(slots.prevs) + len(slots.ends))
    literals = {node.value for node in nodes if isinstance(node, Literal) and not isinstance(node.value, str)}
    for node in nodes:
        if isinstance(node, Fold) and node not in slots.folds:
            slots.folds[node] = _stand_in(node, [*literals, *(item.value for item in slots.folds.values())])
    return slots


def conditions_of(query: QueryPlan) -> Iterator[Expression]:
    """The expressions of a query's conditions."""
    for item in query.conditions:
        if isinstance(item, Where | Without) and item.condition is not None:
            yield item.condition


def _stand_in(fold: Fold, taken: Sequence[object]) -> Computed:
    """A constant that no condition has."""
    if fold.type not in (Type.INTEGER, Type.FLOAT):
        raise NotForKernel(f"the fold `{fold.function}` of decimals")
    number = -(1 << 53)
    while number in taken:
        number -= 2
    return Computed(fold.type, float(number) if fold.type == Type.FLOAT else number)


def over_slots(expression: Expression, slots: Slots) -> Expression:
    """The expression with slots in place of terms."""
    terms = len(slots.query.terms)

    def change(node: Expression) -> Expression:
        match node:
            case Fold():
                return slots.folds[node]
            case PrevOf(type=type_, term=term, field=name):
                slot = slots.prevs[term]
                if name:
                    return FieldOf(type_, slot, name)
                return Call(
                    type_,
                    MICROSECONDS if type_ == Type.INTEGER else "getTime",
                    EventOf(Type.event(slots.events("")[slot]), slot),
                )
            case EndOf(type=type_, function=function, term=term):
                return EventOf(type_, slots.ends[term, function == "first"])
            case MemberOf(type=type_, receiver=EventOf(term=slot), field=name):
                return FieldOf(type_, slot, name)
            case FieldOf() | EventOf() if node.term == terms:
                return replace(node, term=slots.count - 1)
        return node

    return rewritten(_without_folds(expression, slots), change)


def _without_folds(expression: Expression, slots: Slots) -> Expression:
    """Folds go first: what is inside of them is not about slots of the candidate."""
    return rewritten(expression, lambda node: slots.folds[node] if isinstance(node, Fold) else node)

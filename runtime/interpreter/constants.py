"""Containers that a text spells out: made once, and looked up by hash.

`[1, 2, 3].contains(a.code)` is the usual way to ask for one of many values. Made anew for each
event such a list costs length times events, though its elements are known before the first one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from querylang.dataclass import dataclass
from querylang.plan.constants import NoValueError, is_constant, value_of
from querylang.plan.expression import Call, IndexOf, Items, Kind
from runtime.interpreter.values import Dictionary, Value, order_key

_READS = {
    Kind.SEQUENCE: frozenset({"contains", "getOr", "indexOf", "isEmpty", "join", "size"}),
    Kind.DICTIONARY: frozenset({"getOr", "getOrDefault", "hasKey", "isEmpty", "size"}),
}
"""Methods that leave their receiver as it is; no other may get a container that calls share."""

_MOST_KEPT = 1_000
"""Containers that are kept; few programs have as many."""


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A container of scalars that is the same for all events; it is made once, and equals itself.

    value: shared by all that read it
    places: of a sequence, by `order_key` of an element: where it is first. NaN equals nothing
    """

    value: list[Value] | Dictionary
    places: Mapping[object, int]

    def place_of(self, wanted: Value) -> int:
        """`indexOf` of a sequence."""
        return self.places.get(order_key(wanted), -1)


def constant_receiver(node: Call | IndexOf) -> Constant | None:
    """The container that a node reads, if it is constant; None = it has to be made anew."""
    receiver = node.receiver
    if not isinstance(receiver, Items) or not receiver.items:
        return None
    if isinstance(node, Call) and node.method not in _READS[receiver.type.kind]:
        return None
    return _constant(_Same(receiver))


class _Same:
    """A node by its identity: to compare long lists costs as much as to make them."""

    __slots__ = ("node",)

    def __init__(self, node: Items) -> None:
        self.node = node

    def __hash__(self) -> int:
        return id(self.node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.node is self.node


@lru_cache(_MOST_KEPT)
def _constant(same: _Same) -> Constant | None:
    node = same.node
    if not all(part.is_scalar for part in node.type.of) or not all(map(is_constant, node.items)):
        return None
    try:
        values = [value_of(item) for item in node.items]
    except NoValueError:
        return None
    if node.type.kind is Kind.DICTIONARY:
        return Constant(Dictionary.of(zip(values[::2], values[1::2], strict=True)), {})
    return Constant([*values], _first_places(values))


def _first_places(values: Sequence[Value]) -> dict[object, int]:
    places: dict[object, int] = {}
    for place, value in enumerate(values):
        if value == value:  # noqa: PLR0124 # all but NaN
            places.setdefault(order_key(value), place)
    return places

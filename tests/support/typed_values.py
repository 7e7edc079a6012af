"""Random values of random types, for tests of all that handles values."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from querylang.plan.expression import Type
from querylang.plan.model import EventType, Field, Plan
from runtime.interpreter.context import PlanWorld
from runtime.interpreter.values import Dictionary, Event, Location

LEAST, MOST = -(2**63), 2**63 - 1
INF, NAN = math.inf, math.nan

X = EventType("X", (Field("x", Type.INTEGER), Field("o", Type.optional(Type.INTEGER))))
OF_X = Type.event("X")
PLAN = Plan((X,), ())
WORLD = PlanWorld(PLAN)

TYPES = st.recursive(
    st.sampled_from([Type.BOOLEAN, Type.INTEGER, Type.FLOAT, Type.DECIMAL, Type.STRING, Type.LOCATION, OF_X]),
    lambda inner: (
        inner.map(Type.sequence)
        | inner.map(Type.optional)
        | st.builds(Type.dictionary, inner.filter(lambda type_: "optional" not in str(type_)), inner)
    ),
    max_leaves=4,
)
FLOATS = st.floats() | st.sampled_from([INF, -INF, NAN, -0.0])
WHOLE = st.integers(LEAST, MOST)
SIMPLE: dict[Type, st.SearchStrategy[Any]] = {
    Type.BOOLEAN: st.booleans(),
    Type.INTEGER: WHOLE,
    Type.FLOAT: FLOATS,
    Type.DECIMAL: st.decimals(-(10**20) + 1, 10**20 - 1, places=18),
    Type.STRING: st.text(st.characters(exclude_categories=["Cs"])),
    Type.LOCATION: st.builds(Location, FLOATS, FLOATS, FLOATS, FLOATS),
    OF_X: st.builds(lambda x, o: Event(X, {"x": x, "o": o}), WHOLE, st.none() | WHOLE),
}


def values_of(type_: Type) -> st.SearchStrategy[Any]:
    """Values of any type but optionals of optionals, which columns do not tell apart either."""
    if type_ in SIMPLE:
        return SIMPLE[type_]
    inner = [values_of(part) for part in type_.of]
    match type_.kind.value:
        case "sequence":
            return st.lists(inner[0], max_size=3)
        case "optional":
            return st.none() | inner[0]
    return st.lists(st.tuples(*inner), max_size=3).map(Dictionary.of)


TYPED = TYPES.filter(lambda type_: "optional<optional" not in str(type_)).flatmap(
    lambda type_: values_of(type_).map(lambda value: (type_, value))
)

"""Random queries of which one event type is several inputs, by their roles."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.oracle.conditions import Without
from tests.oracle.inputs import Filter, Input
from tests.oracle.query import Query
from tests.oracle.random_patterns import Switches
from tests.oracle.random_queries import Draw, random_draw
from tests.oracle.shapes import Both, Chain, Either, Repeated, Shape, Step


def random_draw_with_roles(seed: int, switches: Switches, count: int) -> Draw:
    """As `random_draw`; in each query that has two event types, some of them become roles of one."""
    draw, dice = random_draw(seed, switches, count), random.Random(seed)
    return replace(draw, queries=tuple(with_roles(dice, query) for query in draw.queries))


def with_roles(dice: random.Random, query: Query) -> Query:
    """The same where some inputs are of one type; each may have a key of its own."""
    types = [item.type for item in query.inputs]
    if len(types) == 1 and dice.random() < 0.5:
        return query
    chosen = dice.sample(types, dice.randint(min(2, len(types)), len(types)))
    shared = dice.choice("AAB")
    others = [name for name in types if name not in chosen]
    if shared in others:  # it has a role, too
        chosen.append(shared)
    roles = {name: f"r{name.lower()}" for name in chosen}
    inputs = tuple(
        an_input(dice, item, shared, roles[item.type], query.keys) if item.type in roles else item
        for item in query.inputs
    )
    conditions = tuple(
        replace(item, type=roles.get(item.type, item.type)) if isinstance(item, Without) else item
        for item in query.conditions
    )
    return replace(query, inputs=inputs, conditions=conditions, pattern=renamed(query.pattern, roles))


def an_input(dice: random.Random, item: Input, type_: str, role: str, keys: tuple[str, ...]) -> Input:
    fields = tuple(dice.choice(("k", "k", "v")) if key == "k" else key for key in keys)
    filters = item.filters
    if dice.random() < 0.4:
        filters = (Filter("v", dice.choice((">", "<=", "!=", "=")), dice.randint(0, 2)),)
    return replace(item, type=type_, role=role, fields=fields, filters=filters)


def renamed(shape: Shape, roles: dict[str, str]) -> Shape:
    """The pattern with roles in place of event types."""
    match shape:
        case Step():
            return replace(shape, type=roles.get(shape.type, shape.type))
        case Repeated():
            inside = renamed(shape.inside, roles)
            assert isinstance(inside, Step | Chain), "what is repeated stays what it is"
            return replace(shape, inside=inside)
        case Chain():
            links = tuple(replace(link, part=renamed(link.part, roles)) for link in shape.links)
            return replace(shape, first=renamed(shape.first, roles), links=links)
        case Both() | Either():
            return replace(shape, left=renamed(shape.left, roles), right=renamed(shape.right, roles))

"""Relations of `relations.py` for books of queries of every construct: runs, groups, folds, `=>`, `find all`, skips."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import ensue
from tests.differential.relations import Said
from tests.oracle.events import SECOND, Row
from tests.oracle.query import Query
from tests.oracle.random_patterns import ALL, EACH, TODAY, Switches
from tests.oracle.random_queries import Draw, random_draw
from tests.oracle.running import Shown, by_query, records_of, text_of

SWITCHES: Sequence[Switches] = (ALL, ALL, TODAY, *EACH.values())
QUERIES = 20
OTHER = 1000
"""What is added to a key, for one that no other record has."""

Rows = Sequence[Row]
"""Each has its number, whatever its place in the table is."""

Answers = Mapping[str, Sequence[Shown]]
"""By query."""

Change = Callable[[Draw, random.Random], tuple[Answers, Answers]]
"""Gives what the changed draw answers, and what it should, of the queries of which the relation says something."""


def answers(queries: Sequence[Query], rows: Rows, *, late: bool) -> Answers:
    """What the engine gives, by the numbers of rows."""
    replay = ensue.replay(text_of(queries, late=late), records_of(rows))
    numbers = {place: row.number for place, row in enumerate(rows, 1)}

    def named(value: object) -> object:
        match value:
            case tuple():
                return tuple(map(named, value))
            case int():
                return numbers[value]
        return value

    found = by_query(replay, {query.name: query.keys for query in queries})
    return {
        query.name: [
            (key, at, {name: named(value) for name, value in members.items()}, points, selected)
            for key, at, members, points, selected in found.get(query.name, [])
        ]
        for query in queries
    }


def later(draw: Draw, chooser: random.Random) -> tuple[Answers, Answers]:
    """A stream that happens later has the same matches, later."""
    by = chooser.choice((86_400, 1_700_000_000)) * SECOND
    rows = [replace(row, at=row.at + by, time=row.time + by) for row in draw.rows]
    found = answers(draw.queries, rows, late=draw.late)
    before = {
        name: [
            (key, at - by, members, {name: None if at is None else at - by for name, at in points.items()}, selected)
            for key, at, members, points, selected in matches
        ]
        for name, matches in found.items()
    }
    return before, answers(draw.queries, draw.rows, late=draw.late)


def among_others(draw: Draw, chooser: random.Random) -> tuple[Answers, Answers]:
    """Records of types that no query takes change no match."""
    rows = list(draw.rows)
    for number in range(len(rows)):
        place = chooser.randrange(1, len(rows) + 1)
        at = rows[place - 1].at
        rows.insert(place, Row(10_000 + number, chooser.choice("WXY"), at, at - chooser.choice((0, 5)) * SECOND))
    return answers(draw.queries, rows, late=draw.late), answers(draw.queries, draw.rows, late=draw.late)


def beside_other_keys(draw: Draw, chooser: random.Random) -> tuple[Answers, Answers]:
    """Events of another key change no match of a query that has it as its key."""
    queries = [query for query in draw.queries if "k" in query.keys]
    rows = list(draw.rows)
    for row in draw.rows:
        place = rows.index(row) + chooser.choice((0, 1))
        rows.insert(place, replace(row, number=row.number + OTHER, k=row.k + OTHER))
    found = answers(queries, rows, late=draw.late)
    own = {
        name: [match for match in matches if not any(isinstance(part, int) and part >= OTHER for part in match[0])]
        for name, matches in found.items()
    }
    return own, answers(queries, draw.rows, late=draw.late)


def in_another_order(draw: Draw, chooser: random.Random) -> tuple[Answers, Answers]:
    """The order of the queries in a program, and which of them it has, change no match."""
    chosen = chooser.sample(draw.queries, chooser.randint(1, len(draw.queries)))
    whole = answers(draw.queries, draw.rows, late=draw.late)
    return answers(chosen, draw.rows, late=draw.late), {query.name: whole[query.name] for query in chosen}


BOOK_RELATIONS: Mapping[str, Change] = {
    f"book {function.__name__}": function for function in (later, among_others, beside_other_keys, in_another_order)
}


def tried_book(seed: int, name: str) -> Said | None:
    """What a relation says of a book; None = nothing."""
    draw = random_draw(seed, SWITCHES[seed % len(SWITCHES)], QUERIES)
    found, expected = BOOK_RELATIONS[name](draw, random.Random(f"{name} {seed}"))
    if not expected:
        return None
    for query in draw.queries:
        if query.name in expected and found[query.name] != expected[query.name]:
            lines = [f"seed {seed}, {name}:", text_of([query], late=draw.late)]
            lines += [f"  {row}" for row in draw.rows]
            lines += ["found:", *map(str, found[query.name]), "expected:", *map(str, expected[query.name])]
            return Said(True, "\n".join(lines), len(expected))
    return Said(any(expected.values()), "", len(expected))

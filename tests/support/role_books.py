"""Random programs with roles, and the same with an event type for each role.

No record has one key for two of its roles, so a record is the same as one record for each of them. Then the program
with roles and the one with types give the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
FIELDS = "integer a; integer b; integer c; integer v; float w;"
ROLES = ("one", "two", "three")
KEYS = dict(zip(ROLES, "abc", strict=True))
TYPES = {"one": "One", "two": "Two", "three": "Three"}


@dataclass(frozen=True)
class RoleBook:
    """A program: `text` with roles of P, `apart` with a type for each of them.

    filters: by role, the least value of `v` that its input admits
    """

    text: str
    apart: str
    roles: tuple[str, ...]
    filters: dict[str, int]


def book(chance: random.Random) -> RoleBook:
    roles = ROLES[: chance.choice([2, 2, 3])]
    annotation = chance.choice(["", "", "@OutOfOrder() "])
    has_wait, has_beat = chance.random() < 0.6, chance.random() < 0.4
    has_time = has_wait and chance.random() < 0.4
    marks = {role: chance.choice(["", "", "?"]) for role in roles}
    filters = {role: chance.choice([0, 0, 0, 1, 2]) for role in roles}
    lines = {
        role: an_input(
            chance, role, marks[role], filters[role], has_wait=has_wait, has_beat=has_beat, has_time=has_time
        )
        for role in roles
    }
    other = f"N() key a{'?' if chance.random() < 0.3 else ''} as k within 20.0{' wait 3.0' if has_wait else ''};"
    has_other = chance.random() < 0.4
    find = a_find(chance, [*roles, *(["N"] if has_other else [])])

    def program(types: dict[str, str], *, has_roles: bool) -> str:
        names = dict.fromkeys(types.values())
        events = [f"{annotation}event {name} {{ {FIELDS} }}" for name in names]
        events += [f"event N {{ {FIELDS} }}", "event Beat { float w; }"]
        inputs = "\n".join(
            f"{types[role]}{line.format(role=f' as {role}' if has_roles else '')}" for role, line in lines.items()
        )
        text = find.format(**{role: role if has_roles else types[role] for role in roles}, N="N")
        return "\n".join([*events, f"query Q {{ inputs {{ {inputs} {other if has_other else ''} }} {text} }}"])

    return RoleBook(
        program(dict.fromkeys(roles, "P"), has_roles=True),
        program({role: TYPES[role] for role in roles}, has_roles=False),
        roles,
        filters,
    )


def an_input(
    chance: random.Random, role: str, mark: str, least: int, *, has_wait: bool, has_beat: bool, has_time: bool
) -> str:
    window = chance.choice(["within 20.0", "within 7.0", "retain 2", "within 30.0 retain 3"])
    unique = chance.choice(["", "", "", " with unique v"])
    new = chance.choice(["", "", "", " new by v within 6.0"])
    wait = f" wait {chance.choice(['1.0', '3.0', '9.0'])}" if has_wait else ""
    beat = " or Beat" if has_wait and has_beat else ""
    time = " time from w" if has_time and beat else ""
    wanted = f"v >= {least}" if least else ""
    return f"({wanted}){{role}} key {KEYS[role]}{mark} as k {window}{unique}{new}{time}{wait}{beat};"


def a_find(chance: random.Random, names: list[str]) -> str:
    one, other, third = (f"{{{chance.choice(names)}}}" for _ in range(3))
    limit = chance.choice(["", "", "", " at most 1 per 5.0"])
    found = chance.choice(
        [
            f"find {one} as a",
            f"find {one} as a -> {other} as b",
            f"find {one} as a -> {other} as b where a.v <= b.v within 8.0",
            f"find {one} as a and {other} as b",
            f"find {one} as a => {other} as b",
            f"find all {one} as a -> {other} as b",
            f"find {one} as a -> wait(4.0)",
            f"find {one} as a -> wait(2.5) without {other} as x",
            f"find {one} as a -> {other} as b without {third} as x",
            f"find {one} as a -> {other} as b -> {third} as c where a.v = c.v",
            f"find {one} as a or {other} as b",
            f"find {one} as a+ -> {other} as b",
            f"find {one} as a -> {other} as b after match skip past last event",
        ]
    )
    return f'{found}{limit} {{{{ print "x"; }}}}'


def rows(chance: random.Random, count: int) -> list[Row]:
    """Rows of P and N in order of arrival; keys of the roles of one record are different."""
    at, found = 100, []
    for _ in range(count):
        at += chance.choice([0, 0, 1, 1, 2, 3, 7])
        event = chance.choice(["P", "P", "P", "N", "Beat"])
        a, b, c = chance.sample([None, 1, 2, 3], 3)
        late = float(at - chance.choice([0, 0, 0, 1, 2, 5, 12]))
        row = {"at": at, "event": event, "ts": late, "w": late}
        found.append(row | ({} if event == "Beat" else {"a": a, "b": b, "c": c, "v": chance.randint(0, 2)}))
    return found


def rows_apart(given: list[Row], roles: tuple[str, ...]) -> tuple[list[Row], list[int]]:
    """The rows with one of its own type for each role, and by such row the number of the record."""
    found, numbers = list[Row](), list[int]()
    for number, row in enumerate(given, 1):
        types = [TYPES[role] for role in roles] if row["event"] == "P" else [row["event"]]
        found += [row | {"event": name} for name in types]
        numbers += [number] * len(types)
    return found, numbers

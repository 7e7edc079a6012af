"""Random queries with look-ups as cases: what they have to find, and what results say."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from runtime.results.for_users import plain_matches, plain_outputs
from runtime.results.schemas import Results
from tests.support.lookups import DEFINITIONS, FAILED, INTEGERS, TEXTS, Event, Part, World, random_rows

WINDOW = 12
"""Seconds."""


@dataclass
class Case:
    """A query, the tables that it looks things up in, events, and what it should find."""

    text: str
    world: World
    rows: list[dict[str, Any]]
    expected: list[Any] = field(default_factory=list)

    @property
    def tables(self) -> dict[str, Any]:
        used = {
            name: rows for name, rows in self.world.tables.items() if f"{name}[" in self.body or f"{name}." in self.body
        }
        return {name: rows or _empty(name) for name, rows in used.items()}

    @property
    def body(self) -> str:
        return self.text.partition("event E")[2]


def _empty(name: str) -> Any:
    import pandas

    columns = {"T": "h level owner live", "U": "h n x", "N": "cidr level owner", "M": "g cidr level"}[name]
    return pandas.DataFrame(columns=columns.split())


def two_steps(seed: int) -> Case:
    """`A -> B`, maybe with a filter, a `without`, selects and a block."""
    chance = random.Random(seed)
    world = World(chance)
    rows = random_rows(chance, chance.randrange(2, 25))
    where = [world.condition(["a", "b"], "b") for _ in range(chance.randrange(1, 3))]
    filter_ = world.lookup(["#"], chance.choice(["T", "U", "N"]), "#") if chance.random() < 0.3 else None
    without = world.condition(["a", "x"], "b") if chance.random() < 0.3 else None
    select = world.lookup(["a", "b"], chance.choice(INTEGERS), "b") if chance.random() < 0.5 else None
    printed = world.lookup(["a", "b"], chance.choice(TEXTS), "b") if chance.random() < 0.5 else None
    waits = chance.random() < 0.2
    text = f"""{DEFINITIONS}
query Q {{
    inputs {{ E({filter_.text.replace("#.", "") if filter_ else ""}) key k within {WINDOW}.0 wait 9.0; }}
    find E as a -> E as b {"-> wait(3.0)" if waits else ""}
        where {" and ".join(part.text for part in where)}
        {f"without E as x where {without.text}" if without else ""}
        {f"select {select.text} as s" if select else ""} {{
        print a.ts.toString() + " " + b.ts.toString(){f" + {printed.text}" if printed else ""};
    }}
}}"""
    case = Case(text, world, rows)
    ordered = sorted(rows, key=lambda row: row["ts"])
    admitted = [row for row in ordered if filter_ is None or filter_.value({"#": row}, row["at"]) is True]
    for place, b in enumerate(admitted):
        earlier = [row for row in admitted[:place] if row["k"] == b["k"] and b["ts"] - row["ts"] < WINDOW]
        found = next(
            (a for a in reversed(earlier) if _holds(where, a, b) and not _blocked(without, a, b, admitted, waits)), None
        )
        if found is not None:
            case.expected += _given(found, b, select, printed)
    return case


def _holds(where: list[Part], a: Event, b: Event) -> bool:
    return all(part.value({"a": a, "b": b}, b["at"]) is True for part in where)


def _blocked(without: Part | None, a: Event, b: Event, events: list[dict[str, Any]], waits: bool) -> bool:
    if without is None:
        return False
    end = b["ts"] + 3 if waits else b["ts"]
    inside = [x for x in events if x["k"] == a["k"] and a["ts"] < x["ts"] < end and x is not b]
    return any(without.value({"a": a, "x": x}, b["at"]) is True for x in inside)


def _given(a: Event, b: Event, select: Part | None, printed: Part | None) -> list[Any]:
    """The match with what it selects, and what its block prints."""
    names = {"a": a, "b": b}
    chosen = None if select is None else select.value(names, b["at"])
    if chosen is FAILED:
        return ["error"]
    found: list[Any] = [(a["ts"], b["ts"], chosen)]
    shown = "" if printed is None else printed.value(names, b["at"])
    return [*found, "error" if shown is FAILED or shown is None else shown]


def every(seed: int) -> Case:
    """`find every` with aggregates of lookups, and lookups about none."""
    chance = random.Random(seed)
    world = World(chance)
    rows = random_rows(chance, chance.randrange(2, 25))
    argument = world.lookup(["a"], chance.choice(INTEGERS), "a")
    where = world.condition(["a"], "a", depth=0) if chance.random() < 0.5 else None
    level = chance.choice(["h0", "h1"])
    text = f"""{DEFINITIONS}
query Q {{
    inputs {{ E() key k within {WINDOW}.0 wait 9.0; }}
    find every E as a {f"where {where.text}" if where else ""}
        select count() as n
        select sum({argument.text}) as s
        having T.getOrDefault("{level}").level < 2
}}"""
    case = Case(text, world, rows)
    ordered = sorted(rows, key=lambda row: row["ts"])
    for place, b in enumerate(ordered):
        window = [row for row in ordered[: place + 1] if row["k"] == b["k"] and b["ts"] - row["ts"] < WINDOW]

        def is_one(row: Event, moment: float = b["at"]) -> bool:
            return where is None or where.value({"a": row}, moment) is True

        if not is_one(b):
            continue
        window = [row for row in window if is_one(row)]
        asked = world.row("T", [level], b["at"])
        known = 0 if asked is None else asked["level"]
        if known is None or known >= 2:
            continue
        values = [argument.value({"a": row}, b["at"]) for row in window]
        values = [value for value in values if value is not None and value is not FAILED]
        case.expected.append((len(window), sum(values) if values else None))
    return case


def contents(case: Case, matches: list[Any], outputs: list[Any]) -> Counter[str]:
    found: list[Any] = []
    for match in matches:
        if "n" in match.get("selected", {}):
            found.append((match["selected"]["n"], match["selected"]["s"] or None))
            continue
        members = match["members"]
        own = (members["a"]["fields"]["ts"], members["b"]["fields"]["ts"], match.get("selected", {}).get("s"))
        found.append(own)
    found += [
        item["text"].split(" ")[1].lstrip("-.0123456789") if item["kind"] == "print" else "error" for item in outputs
    ]
    return Counter(map(str, found))


def wanted(case: Case) -> Counter[str]:
    return Counter(
        str((item[0], item[1] or None) if len(item) == 2 and not isinstance(item, str) else item)
        for item in case.expected
    )


def of_results(case: Case, results: Results) -> Counter[str]:
    matches = [match for table in results.matches.values() for match in plain_matches(table, lambda _s, _p, o: o)]
    return contents(case, matches, plain_outputs(results.outputs))

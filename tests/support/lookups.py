"""Random queries that look things up in random tables with versions, and what they find: brute force over all rows.

Nothing of this reads a plan or asks an index. A value is a Python value, None for a null, or FAILED.
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FAILED = "failed"
"""What cannot be computed, as no text in these tables is."""

Event = Mapping[str, Any]
Names = Mapping[str, Event]
"""By name of the pattern, its event."""

HOSTS, GROUPS = ["h0", "h1", "h2", "h3", "", "Ω"], ["g0", "g1"]
ADDRESSES = ["10.0.0.1", "10.0.1.1", "10.1.0.1", "192.168.0.1", "::1", "2001:db8::1", "::ffff:10.0.0.1", "none", ""]
NETWORKS = ["10.0.0.0/8", "10.0.0.0/16", "10.0.0.0/24", "10.0.0.1", "0.0.0.0/0", "::/0", "2001:db8::/32", "::1/128"]

DEFINITIONS = """
table T { key string h; integer level; string owner; boolean live; }
table U { key string h; key integer n; float x; }
table N { key network cidr; integer level; string owner; }
table M { key string g; key network cidr; integer level; }
@TimeFrom("ts")
@OutOfOrder
event E { string k; string h; string g; string ip; integer n; float ts; }
"""

KEYS = {"T": ("h",), "U": ("h", "n"), "N": ("cidr",), "M": ("g", "cidr")}
INTEGERS, FLOATS, TEXTS = ("T.level", "N.level", "M.level"), ("U.x",), ("T.owner", "N.owner")
DEFAULTS = {"level": 0, "x": 0.0, "owner": "", "live": False}


@dataclass(frozen=True)
class Part:
    """An expression: its text, the names that it is about, and its value at a moment for names."""

    text: str
    about: frozenset[str]
    value: Callable[[Names, float], Any]


@dataclass
class World:
    """Random tables, and lookups in them."""

    chance: random.Random
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in KEYS:
            self.tables[name] = self._rows(name)

    def _rows(self, name: str) -> list[dict[str, Any]]:
        """Rows that do not hold at the same time as others of their key."""
        found = []
        keys = {tuple(self._key(part) for part in KEYS[name]) for _ in range(self.chance.randrange(0, 9))}
        for key in sorted(keys):
            times = sorted(self.chance.sample(range(1, 60), 2 * self.chance.randrange(0, 3)))
            spans: list[tuple[int | None, int | None]] = list(zip(times[::2], times[1::2], strict=True)) or [
                (None, None)
            ]
            for since, until in spans:
                row = dict(zip(KEYS[name], key, strict=True)) | self._fields(name)
                found.append(row | {"valid_from": since, "valid_to": until})
        self.chance.shuffle(found)
        return found

    def _key(self, part: str) -> Any:
        return self.chance.choice({"h": HOSTS, "g": GROUPS, "cidr": NETWORKS, "n": [1, 2]}[part])

    def _fields(self, name: str) -> dict[str, Any]:
        level = self.chance.choice([1, 2, 3, None])
        owner = self.chance.choice(["ann", "bob", None])
        return {
            "T": {"level": level, "owner": owner, "live": self.chance.choice([True, False, None])},
            "U": {"x": self.chance.choice([0.5, 2.5, None])},
            "N": {"level": level, "owner": owner},
            "M": {"level": level},
        }[name]

    def row(self, table: str, key: Sequence[Any], moment: float) -> dict[str, Any] | None:
        """The row of a key at a moment; of networks that of the longest one."""
        best, length = None, -1
        for row in self.tables[table]:
            since, until = row["valid_from"], row["valid_to"]
            if (since is not None and moment < since) or (until is not None and moment >= until):
                continue
            own = 0
            for part, wanted in zip(KEYS[table], key, strict=True):
                if part == "cidr":
                    network = ipaddress.ip_network(row[part])
                    try:
                        is_in = ipaddress.ip_address(wanted) in network
                    except ValueError:
                        is_in = False
                    own = network.prefixlen if is_in else -1
                elif row[part] != wanted:
                    own = -1
                if own < 0:
                    break
            if own > length:
                best, length = row, own
        return best

    def lookup(self, names: Sequence[str], what: str, latest: str) -> Part:
        """A random lookup; `what`: table and field, `T.level`; an empty field asks whether there is a row.

        latest: the name of the latest event
        """
        table, _, wanted = what.partition(".")
        about: set[str] = set()
        keys = [self._argument(part, names, about) for part in KEYS[table]]
        texts = ", ".join(key.text for key in keys)
        has_default = bool(wanted) and self.chance.random() < 0.4
        row_text = f"{table}.getOrDefault({texts})" if has_default else f"{table}[{texts}]"
        text = f"{row_text}.{wanted}" if wanted else f"{table}.hasKey({texts})"

        def value(events: Names, moment: float) -> Any:
            own = [key.value(events, moment) for key in keys]
            if FAILED in own:
                return FAILED
            if None in own:
                return None
            if len(about) == 1:
                moment = events[next(iter(about))]["at"]
            row = self.row(table, own, moment)
            if not wanted:
                return row is not None
            if row is None:
                return DEFAULTS[wanted] if has_default else FAILED
            return row[wanted]

        return Part(text, frozenset(about), value)

    def _argument(self, part: str, names: Sequence[str], about: set[str]) -> Part:
        name = self.chance.choice(names)
        if part in ("g", "h") and self.chance.random() < 0.15:
            return Part('"h1"' if part == "h" else '"g1"', frozenset(), lambda _events, _moment: f"{part}1")
        if part == "h" and self.chance.random() < 0.1:
            return Part("k", frozenset(), lambda events, _moment: next(iter(events.values()))["k"])
        if part == "h" and len(names) > 1 and self.chance.random() < 0.1:
            about.update(names)
            one, two = names[:2]
            return Part(
                f'{one}.h + {two}.h.replace("h", "")',
                frozenset(names),
                lambda events, _: _joined(events[one]["h"], events[two]["h"]),
            )
        about.add(name)
        own = "ip" if part == "cidr" else part
        return Part(f"{name}.{own}", frozenset((name,)), lambda events, _moment: events[name][own])

    def condition(self, names: Sequence[str], latest: str, depth: int = 1) -> Part:
        """A random condition with lookups."""
        kind = self.chance.random()
        if depth and kind < 0.2:
            one, two = (self.condition(names, latest, depth - 1) for _ in range(2))
            return Part(
                f"({one.text} or {two.text})", one.about | two.about, lambda e, m: _either(one.value(e, m), two, e, m)
            )
        if kind < 0.45:
            part = self.lookup(names, self.chance.choice(list(KEYS)), latest)
            if self.chance.random() < 0.5:
                return part
            return Part(f"not {part.text}", part.about, lambda e, m: _not(part.value(e, m)))
        if kind < 0.6:
            part = self.lookup(names, self.chance.choice(TEXTS), latest)
            return Part(f'{part.text} = "ann"', part.about, lambda e, m: _compared(part.value(e, m), "ann", "="))
        if kind < 0.7:
            part = self.lookup(names, "U.x", latest)
            return Part(f"{part.text} > 1.0", part.about, lambda e, m: _compared(part.value(e, m), 1.0, ">"))
        one, two = (self.lookup(names, self.chance.choice(INTEGERS), latest) for _ in range(2))
        return Part(f"{one.text} <= {two.text}", one.about | two.about, lambda e, m: _both(one.value(e, m), two, e, m))


def _joined(one: str | None, two: str | None) -> str | None:
    return None if one is None or two is None else one + two.replace("h", "", 1)


def _either(left: Any, other: Part, events: Names, moment: float) -> Any:
    if left is FAILED or left is True:
        return left
    right = other.value(events, moment)
    if right is FAILED or right is True:
        return right
    return None if left is None or right is None else False


def _not(value: Any) -> Any:
    return value if value is FAILED or value is None else not value


def _both(left: Any, other: Part, events: Names, moment: float) -> Any:
    return left if left is FAILED else _compared(left, other.value(events, moment), "<=")


def _compared(left: Any, right: Any, operator: str) -> Any:
    if left is FAILED or right is FAILED:
        return FAILED
    if left is None or right is None:
        return None
    return {"=": left == right, ">": left > right, "<=": left <= right}[operator]


def random_rows(chance: random.Random, count: int) -> list[dict[str, Any]]:
    """Events that arrive in order, each less than 9 seconds behind its time; no two happen together."""
    times = chance.sample(range(600), count)
    found: list[dict[str, Any]] = []
    for place, at in enumerate(sorted(time / 10 + chance.random() * 8 for time in times)):
        ts = at - chance.random() * 8
        own = {
            "k": chance.choice(["x", "h1"]),
            "h": chance.choice([*HOSTS, None]),
            "g": chance.choice(GROUPS),
            "ip": chance.choice([*ADDRESSES, None]),
            "n": chance.choice([1, 2, 3]),
        }
        found.append({"at": round(at, 3) + place / 1e6, "event": "E", **own, "ts": round(ts, 3) + place / 1e6})
    return found

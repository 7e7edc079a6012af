"""The list of changes: drawn once, kept, and read again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.mutation.changes import Change, find, possible_changes

LIST = Path(__file__).parent / "changes.jsonl"


@dataclass(frozen=True, slots=True)
class Listed:
    """A change with its number, and why no test can notice it, if that is so."""

    number: int
    change: Change
    equivalent: str = ""


def read_list(path: Path = LIST) -> list[Listed]:
    """The changes in the order of their numbers."""
    return [_of_fields(json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def _of_fields(fields: dict[str, Any]) -> Listed:
    number, reason = fields.pop("number"), fields.pop("equivalent", "")
    return Listed(number, Change(**fields), reason)


def write_list(listed: list[Listed], path: Path = LIST) -> None:
    """One change a line."""
    path.write_text("".join(f"{json.dumps(_as_fields(each))}\n" for each in listed), "utf-8")


def _as_fields(each: Listed) -> dict[str, object]:
    reason = {"equivalent": each.equivalent} if each.equivalent else {}
    return {"number": each.number, **asdict(each.change), **reason}


def redrawn(listed: Sequence[Listed], seed: int) -> list[Listed]:
    """The list with another change of the same package for each whose line is not in the tree any more."""
    chooser = Random(seed)
    lost = [each for each in listed if find(each.change) is None]
    known = {(each.change.package, each.change.function) for each in listed}
    fresh = {each.change.package: _drawn_from(each.change.package, len(listed), chooser) for each in lost}
    for each in lost:
        package = each.change.package
        change = next(own for own in fresh[package] if (package, own.function) not in known)
        listed = [Listed(own.number, change) if own is each else own for own in listed]
    return [*listed]


def draw(seed: int, counts: dict[str, int]) -> list[Listed]:
    """So many changes per package, one a function at most; the same seed draws the same from the same tree."""
    chooser = Random(seed)
    drawn = [change for package, count in counts.items() for change in _drawn_from(package, count, chooser)]
    return [Listed(number, change) for number, change in enumerate(drawn, 1)]


def _drawn_from(package: str, count: int, chooser: Random) -> Iterator[Change]:
    """Lines are drawn, then one of the line's changes: a line with many of them is not preferred."""
    lines: dict[tuple[Path, int], list[Change]] = {}
    for change, spot in possible_changes(package):
        lines.setdefault((spot.path, spot.line), []).append(change)
    functions: set[tuple[Path, str]] = set()
    order = sorted(lines)
    chooser.shuffle(order)
    for place in order:
        change = chooser.choice(lines[place])
        found = find(change)
        if (place[0], change.function) in functions or found is None or (found.path, found.line) != place:
            continue
        functions.add((place[0], change.function))
        yield change
        count -= 1
        if count == 0:
            return

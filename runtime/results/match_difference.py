"""What one query finds and another one does not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.results.json_objects import plain_value

OWN = frozenset({"match_id", "query", "definitive", "emitted", "waited"})
"""Columns that may differ where two queries find the same: names, and when it was given out."""

Match = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MatchDifference:
    """Matches of two queries, compared by all columns but `OWN`.

    both: number of matches that both have
    only_first, only_second: those that only one has, by time
    """

    both: int
    only_first: tuple[Match, ...]
    only_second: tuple[Match, ...]

    @property
    def is_equal(self) -> bool:
        """Whether both find the same."""
        return not self.only_first and not self.only_second


def difference(first: Iterable[Match], second: Iterable[Match]) -> MatchDifference:
    """Compare matches; each is a row of a table of matches, or of CSV or JSON that holds it."""
    left, right = _counted(first), _counted(second)
    both = left & right
    return MatchDifference(both.total(), _rows(left - both), _rows(right - both))


def _counted(matches: Iterable[Match]) -> Counter[str]:
    return Counter(_text(match) for match in matches)


def _text(match: Match) -> str:
    own = {name: plain_value(value) for name, value in match.items() if name not in OWN}
    return json.dumps(own, sort_keys=True, ensure_ascii=False)


def _rows(counted: Counter[str]) -> tuple[Match, ...]:
    rows = [json.loads(text) for text in counted.elements()]
    return tuple(sorted(rows, key=lambda row: (str(row.get("time")), json.dumps(row, sort_keys=True))))

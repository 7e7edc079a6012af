"""Few matches as a DataFrame, without Arrow tables between: those cost more than the matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ensue.rendering.data_frames import RowFrames
from ensue.rendering.match_tables import matches_paths, matches_table
from querylang.plan.model import Plan
from runtime.results.for_users import row_is_offset
from runtime.results.schemas import Results

if TYPE_CHECKING:
    import pandas as pd


class MatchFrames:
    """Makes the DataFrames of a plan's matches, as `matches_table` has them."""

    def __init__(self, plan: Plan) -> None:
        self._frames = RowFrames(matches_table(plan, Results(), row_is_offset).schema)
        self._paths = matches_paths(plan)

    def of(self, matches: Sequence[Mapping[str, Any]]) -> pd.DataFrame | None:
        """None = some column is of another type than most.

        matches: at least one, in order; with the columns of `match_schema`, times in µs
        """
        if not self._frames.is_possible:
            return None
        return self._frames.of([[_cell(match, path) for match in matches] for path in self._paths])


def _cell(match: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = match
    for name in path:
        if value is None:
            return None
        value = value[name]
    return value

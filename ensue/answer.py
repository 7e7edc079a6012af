"""What queries have found in records: matches, outputs, discards and accounts as tables.

`Answer` holds the data. `ensue.rendering`, which is below this module, makes DataFrames and text
of it on first use. Pandas is imported for DataFrames only: it takes longer to load than a small
table to replay.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ensue.rendering.account import account_text
from ensue.rendering.match_tables import matches_of, matches_table, nested_matches
from querylang.errors import InputError
from querylang.plan.model import Plan
from runtime.replay.order import matches_in_order
from runtime.results.for_users import Plain, RowOf, flat_discards, plain_matches, plain_outputs, public, row_is_offset
from runtime.results.schemas import Results

if TYPE_CHECKING:
    import pandas as pd


class Answer:
    """What queries have found. Times are in UTC, with microseconds.

    plan: the queries, compiled
    results: matches by query, outputs, discards and the ledger, each in order
    """

    plan: Plan
    results: Results

    @property
    def _found(self) -> Results:
        """The matches, outputs and discards of `results`; its ledger may be missing."""
        return self.results

    @cached_property
    def _row_of(self) -> RowOf:
        """The number of a record's row in its table."""
        return row_is_offset

    @cached_property
    def matches(self) -> pd.DataFrame:
        """One row per match, in order; no cell holds a struct for an event.

        The columns are `match_id`, `query`, `instance`, the keys, `time`, `definitive`, `emitted`
        and `waited`. Each name of the pattern follows, with its fields (`low.v`) and `low.event`,
        `low.time`, `low.source_time`, `low.arrival`, `low.row`; then selects, then named waits. A
        field whose name is taken gets `_` behind it. Of several queries there are the columns that
        all have; `matches_of` has the others.
        """
        return self._frame(matches_table(self.plan, self._found, self._row_of))

    def matches_of(self, query: str) -> pd.DataFrame:
        """The matches of one query with all its columns, as in `matches`.

        query: its name; the title `Name/instance` means one instance. Raises InputError
        """
        return self._frame(matches_of(self.plan, self._found, self._row_of, query))

    def to_arrow(self, query: str | None = None) -> pa.Table:
        """The matches nested as on Spark: a struct per name of the pattern, with its `fields`.

        query: as in `matches_of`; None = all queries, with the common columns if there are several
        """
        return nested_matches(self.plan, self._found, query)

    def to_polars(self, query: str | None = None) -> Any:
        """The same as `to_arrow`, as a Polars DataFrame; InputError if Polars is not installed."""
        try:
            import polars
        except ImportError:
            raise InputError("Polars is not installed: `pip install polars`, or use `to_arrow()`") from None
        return polars.from_arrow(self.to_arrow(query))

    @cached_property
    def outputs(self) -> pd.DataFrame:
        """One row per print, send or error, in order.

        The columns are `kind`, `channel`, `text`, `event` (JSON), `query`, `instance`, `key`
        (JSON), `time`, `emitted` and `match_id`.
        """
        return self._frame(public(self._found.outputs))

    @cached_property
    def discarded(self) -> pd.DataFrame:
        """One row per discarded record (and query, if a query discarded it), with the reason.

        The columns are `query`, `reason`, `event`, `source`, `partition`, `offset`, `source_time`,
        `arrival`, `bound` and `text`, then the fields of the events that the queries read.
        """
        return self._frame(self._discards())

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """What became of all records: `query`, `source`, `what`, `count`."""
        return self._frame(self.results.ledger)

    def match_objects(self) -> list[Plain]:
        """The matches as `--format matches` prints them."""
        plain = {name: plain_matches(table, self._row_of) for name, table in self._found.matches.items()}
        return [plain[name][row] for name, row in matches_in_order(self.plan, self._found)]

    def output_objects(self) -> list[Plain]:
        """The outputs as `--format outputs` prints them."""
        return plain_outputs(self._found.outputs)

    def account(self) -> str:
        """What became of all records: a line, or a table for several queries or sources."""
        return account_text(self.results.ledger)

    def summary(self) -> str:
        """One line: matches, outputs, discards."""
        from ensue.rendering.summary import counts_text

        return counts_text(self._found)

    def __len__(self) -> int:
        """The number of matches."""
        return sum(len(table) for table in self._found.matches.values())

    def __bool__(self) -> bool:
        """An answer is something, also without matches."""
        return True

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary()}>"

    def __str__(self) -> str:
        """The first rows of each table, and the account."""
        from ensue.rendering.first_rows import first_rows_text

        return first_rows_text(self.summary(), self._tables(), self.account())

    def _repr_html_(self) -> str:
        """For notebooks: the same as tables."""
        from ensue.rendering.first_rows import first_rows_html

        return first_rows_html(self.summary(), self._tables(), self.account())

    def _tables(self) -> dict[str, pa.Table]:
        """What is shown of it, by title."""
        return {
            "matches": matches_table(self.plan, self._found, self._row_of),
            "outputs": public(self._found.outputs),
            "discarded": self._discards(),
        }

    def _discards(self) -> pa.Table:
        assert self._found.discarded is not None, "the engine fills the table in"
        return flat_discards(self.plan, self._found.discarded)

    @staticmethod
    def _frame(table: pa.Table) -> pd.DataFrame:
        from ensue.rendering.data_frames import frame_of

        return frame_of(table)

"""What queries have found in records: matches, outputs, discards and accounts as tables.

`Answer` holds the data, and `Replay` the steps as well. `ensue.rendering`, which is below this
module, makes DataFrames and text of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ensue.rendering.account import account_text, flushed_text, left_text, summary_text
from ensue.rendering.match_tables import matches_of, matches_table, nested_matches
from ensue.rendering.replay_table import match_steps, noteworthy, steps_table
from querylang.dataclass import dataclass
from querylang.errors import InputError, listed
from querylang.plan.model import Plan, QueryPlan
from runtime.replay import FileRecords, Records, Script, Step, are_quick, epoch_steps, replay_steps, waiting_matches
from runtime.results import for_users
from runtime.results.ledger import late_warning
from runtime.results.schemas import Results, matches_in_order, shown_outputs

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    import pandas as pd

    from ensue.queries import Compiled
    from ensue.rendering.funnel import FunnelAnswer
    from ensue.rendering.scores import Backtest
    from runtime.why import Why


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
    def _row_of(self) -> for_users.RowOf:
        """The number of a record's row in its table."""
        return for_users.row_is_offset

    @cached_property
    def matches(self) -> pd.DataFrame:
        """One row per match, in order; no cell holds a struct for an event.

        The columns are `match_id`, `query`, `instance`, the keys, `time`, `definitive`, `emitted`
        and `waited`; with metadata `metadata` and `severity`, too. Each name of the pattern
        follows, with its fields (`low.v`) and `low.event`, `low.time`, `low.source_time`,
        `low.arrival`, `low.row`; then selects, then named waits. A field whose name is taken gets
        `_` behind it. Of several queries there are the columns that all have, and what some say of
        themselves; `matches_of` has the others.
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
        (JSON), `time`, `emitted` and `match_id`; with metadata `metadata` and `severity`, too.
        """
        return self._frame(self._outputs())

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

    def match_objects(self) -> list[for_users.Plain]:
        """The matches as `--format matches` prints them."""
        plain = for_users.PlainMatches(self._row_of).of(self._found)
        return [plain[name][row] for name, row in matches_in_order(self.plan, self._found)]

    def output_objects(self) -> list[for_users.Plain]:
        """The outputs as `--format outputs` prints them."""
        return for_users.plain_outputs(self._found.outputs)

    def account(self) -> str:
        """What became of all records: a line, or a table for several queries or sources."""
        return account_text(self.results.ledger)

    def summary(self) -> str:
        """One line: matches, outputs, discards."""
        from ensue.rendering.account import counts_text

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
        from ensue.rendering.report import first_rows_text

        return first_rows_text(self.summary(), self._tables(), self.account())

    def _repr_html_(self) -> str:
        """For notebooks: the same as tables."""
        from ensue.rendering.report import first_rows_html

        return first_rows_html(self.summary(), self._tables(), self.account())

    def plot(self, field: str, query: str | None = None, axes: Any = None) -> Any:
        """Draw the matches over a field: a line per match, through the values of its events.

        field: a number that events of the pattern have, such as `v`
        query: as in `matches_of`; None = the only one
        axes: of matplotlib, to draw on; None = new ones
        Gives the axes. Raises InputError without matplotlib, and for a field that no event has.
        """
        from ensue.rendering.report import plot_matches

        names = list(dict.fromkeys(item.name for item in self.plan.queries))
        if query is None and len(names) != 1:
            raise InputError(f"`plot` draws the matches of one query: write `query=` with one of {listed(names)}")
        table = matches_of(self.plan, self._found, self._row_of, names[0] if query is None else query)
        return plot_matches(table, field, axes)

    def _tables(self) -> dict[str, pa.Table]:
        """What is shown of it, by title."""
        from ensue.rendering.report import without_repeated_keys

        keys = [key.name for query in self.plan.queries for key in query.keys]
        matches = matches_table(self.plan, self._found, self._row_of)
        return {
            "matches": without_repeated_keys(matches, keys),
            "outputs": self._outputs(),
            "discarded": self._discards(),
        }

    def _outputs(self) -> pa.Table:
        return shown_outputs(self.plan, for_users.without_order_columns(self._found.outputs))

    def _discards(self) -> pa.Table:
        assert self._found.discarded is not None, "the engine fills the table in"
        return for_users.flat_discards(self.plan, self._found.discarded)

    @staticmethod
    def _frame(table: pa.Table) -> pd.DataFrame:
        from ensue.rendering.data_frames import frame_of

        return frame_of(table)


# A replay: an answer, with its steps, and the table for people.

MOST_ROWS = 2_000
"""Rows of a table that are all shown; of a longer one those around what happened."""
MOST_STEPPED = 50_000
"""A longer table shows its matches only: the steps of all its rows take seconds."""


@dataclass(frozen=True, repr=False)
class Replay(Answer):
    """The result of a replay: Arrow tables, and what users read as properties.

    results: matches by query, outputs, discards and the ledger
    figures: the metrics
    until: time at which the replay stopped, µs; None = not before the last row
    flush: whether time advanced after the last row until no timer was left
    idle: queries without an instance, because a parameter has no value
    script: the plans that hold one after the other; None = the queries do not change
    compiled: what the plan was made of; None = not known
    """

    plan: Plan
    records: Records | FileRecords
    results: Results
    figures: pa.Table
    until: int | None
    flush: bool
    idle: tuple[QueryPlan, ...] = ()
    script: Script | None = None
    compiled: Compiled | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is suspicious in the tables, and in how they fit the queries, a line each."""
        late = late_warning(self.results.ledger)
        return self.records.warnings if late is None else (*self.records.warnings, late)

    @cached_property
    def _row_of(self) -> for_users.RowOf:
        return self.records.row_of()

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """How the events fit the ordering policies, at the end of the replay.

        The columns are `query`, `metric`, `outcome` and `value`; `runtime.engine.metrics` says
        what each metric means.
        """
        return self.figures.to_pandas()

    @cached_property
    def steps(self) -> list[for_users.Plain]:
        """One object per row and timer, as `--format steps` prints them."""
        return [step.to_plain() for step in self._steps]

    @cached_property
    def _steps(self) -> list[Step]:
        return list(self._all_steps())

    def iter_steps(self) -> Iterator[for_users.Plain]:
        """The same as `steps`, one by one: the first ones are there before the last are known."""
        for step in self._all_steps():
            yield step.to_plain()

    def _all_steps(self) -> Iterator[Step]:
        if self.script is not None:
            assert isinstance(self.records, Records), "records of changing queries are in memory"
            return epoch_steps(self.script, self.records, until=self.until, flush=self.flush)
        known = self.results if len(self.records) <= MOST_STEPPED else None
        return replay_steps(self.plan, self.records, until=self.until, flush=self.flush, known=known)

    def table(self, width: int | None = None) -> str:
        """The replay as a table for people.

        Of a long one the rows around matches, discards and the end are shown.

        width: columns of the terminal that it has to fit into; None = as wide as it is
        """
        rows = len(self.records)
        if rows <= MOST_ROWS:
            return steps_table(self.plan, self._steps, width)
        if rows <= MOST_STEPPED and self.script is None and are_quick(self.plan, self.records):
            steps, what = noteworthy(self._steps)
        else:
            steps = match_steps(self.plan, self.results, self.match_objects(), self.output_objects())
            what = "matches only"
        remark = f"{what}, because the tables have {rows} rows; `--format steps` prints them all"
        return f"{steps_table(self.plan, steps, width)}\n\n({remark})"

    def report(self, path: str | Path) -> Path:
        """Write the replay as one HTML page: account, matches, discards, steps and queries.

        The first matches and discards have below them why they came, or were discarded.

        path: a new file, or a report to be replaced; InputError for any other
        """
        from ensue.asking_why import explained
        from ensue.rendering.report import Page, write_page

        matches = {name: matches_of(self.plan, self.results, self._row_of, name) for name in self.results.matches}
        page = Page(
            summary=f"{', '.join(self.records.sources)}: {self.summary()}",
            account=self.account(),
            warnings=self.warnings,
            matches=matches,
            objects=self.match_objects(),
            tables=self._tables(),
            steps=self.table(),
            queries=self.plan.queries,
            explained=explained(self),
        )
        return write_page(page, Path(path))

    def why(
        self,
        match: str | None = None,
        *,
        key: Any = None,
        at: str | float | datetime | None = None,
        row: int | None = None,
        source: str | None = None,
        query: str | None = None,
    ) -> Why:
        """Why a match came, or did not: computed by searching again, and nothing is changed.

        With nothing given it answers the nearest misses of the tables, ranked. Iterating over the
        answer gives an `Explanation` for each event; printed it is text.

        match: the `match_id` of a match
        key: the value of the only key, or a mapping by the names of keys
        at: a moment of the key: arrival or source time of an event, else the last event before it;
            None = the last event
        row: the number of a row in its table, from 1
        source: the name of that table; None = any
        query: the name of a query, or `Name/instance`; None = all

        Raises InputError.
        """
        from ensue.asking_why import why

        return why(self, match, key=key, at=at, row=row, source=source, query=query)

    def funnel(self, query: str | None = None) -> FunnelAnswer:
        """How many first steps reached which step of a query, and why the others stopped.

        Printed it is a table; `frame` is a DataFrame, `svg()` a picture. `ensue funnel` in
        docs/not-firing.md says what is counted.

        query: its name, or `Name/instance`; None = there is only one

        Raises InputError.
        """
        from ensue.asking_why import funnels
        from ensue.rendering.funnel import FunnelAnswer

        queries = [item.public_title for item in self.plan.queries if query in (None, item.name, item.public_title)]
        if len(queries) > 1:
            raise InputError(f"which query? `funnel` of one of {listed([repr(title) for title in queries])}")
        return FunnelAnswer(funnels(self, query)[0])

    def backtest(self, labels: Any, *, within: str | timedelta | None = None, query: str | None = None) -> Backtest:
        """Compare the matches with labels: precision, recall, delay, what was missed.

        Printed it is a table; `frame`, `missed` and `false_alarms` are DataFrames. docs/backtest.md
        says what counts.

        labels: what should have fired: a path, a DataFrame, an Arrow table or a list of mappings
            with `time`, with `start` and `end`, or with `row`; and with values of keys
        within: how long behind a label a match still counts, such as `5 minutes`, or a timedelta
        query: its name, or `Name/instance`; None = all

        Raises InputError.
        """
        from ensue.asking_why import scores
        from ensue.rendering.scores import Backtest

        return Backtest(tuple(scores(self, labels, within, query)))

    def account(self) -> str:
        """As of every answer; with what is left where the replay ends before all timers."""
        return "\n".join([super().account(), *self.left(), *flushed_text(self.flushed)])

    def left(self) -> list[str]:
        """Matches that wait and events that are held at the end of the replay, a line each."""
        waiting, next_due = self.waiting
        return [] if self._has_ended else left_text(waiting, next_due, self.results.ledger)

    @cached_property
    def flushed(self) -> int:
        """How many matches came only because the end advanced time past the last row.

        Not counted where control events change the queries.
        """
        if self.until is not None or not self.flush or self.script is not None:
            return 0
        last = self.records.last_arrival
        emitted = [table.column("emitted").cast(pa.int64()) for table in self.results.matches.values() if len(table)]
        return sum(int(pc.sum(pc.greater(column, last)).as_py() or 0) for column in emitted)

    @cached_property
    def waiting(self) -> tuple[int, int | None]:
        """How many matches wait at the end, and when the next is due, µs; None = none waits."""
        return (0, None) if self._has_ended else waiting_matches(self.plan, self.records, self.until)

    @property
    def _has_ended(self) -> bool:
        """Whether nothing can be left; not counted where control events change the queries."""
        return (self.until is None and self.flush) or self.script is not None

    def summary(self) -> str:
        """One line: rows, matches, discards."""
        return summary_text(len(self.records.until(self.until)), self.results, self.idle)

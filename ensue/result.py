"""The result of a replay: matches, outputs, discards, accounts and steps.

`Replay` holds the data. `ensue.rendering`, which is below this module, makes DataFrames and text
of it on first use. Pandas is imported for DataFrames only: it takes longer to load than a small
table to replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

import pyarrow as pa

from ensue.rendering.account import account_text
from ensue.rendering.replay_table import match_steps, steps_table
from ensue.rendering.summary import summary_text
from querylang.plan.model import Plan, QueryPlan
from runtime.replay.replay import Records, matches_in_order
from runtime.replay.steps import Step, replay_steps, row_numbers
from runtime.results.json_objects import Plain, plain_matches, plain_outputs
from runtime.results.schemas import Results

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 2_000
"""A longer table shows the rows with matches only: it is read by people."""


@dataclass(frozen=True)
class Replay:
    """The result of a replay: Arrow tables, and what users read as properties.

    results: matches by query, outputs, discards and the ledger
    figures: the metrics
    until: time at which the replay stopped, µs; None = not before the last row
    flush: whether time advanced after the last row until no timer was left
    idle: queries without an instance, because a parameter has no value
    """

    plan: Plan
    records: Records
    results: Results
    figures: pa.Table
    until: int | None
    flush: bool
    idle: tuple[QueryPlan, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is suspicious in the tables, a line each."""
        return self.records.warnings

    @cached_property
    def matches(self) -> pd.DataFrame:
        """One row per match, in order.

        `key`, `members`, `selected` and `points` are dictionaries as in `--format matches`.
        """
        from ensue.rendering.data_frames import matches_frame

        return matches_frame(self.plan, self.results, row_numbers(self.records))

    @cached_property
    def outputs(self) -> pd.DataFrame:
        """One row per print, send or error."""
        from ensue.rendering.data_frames import outputs_frame

        return outputs_frame(self.results.outputs)

    @cached_property
    def discarded(self) -> pd.DataFrame:
        """One row per discarded record (and query, if a query discarded it), with the reason."""
        from ensue.rendering.data_frames import discards_frame

        assert self.results.discarded is not None, "a replay has the table"
        return discards_frame(self.plan, self.results.discarded)

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """What became of all records: `query`, `source`, `what`, `count`."""
        return self.results.ledger.to_pandas()

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """How the events fit the ordering policies, at the end of the replay.

        The columns are `query`, `metric`, `outcome` and `value`; `runtime.engine.metrics` says
        what each metric means.
        """
        return self.figures.to_pandas()

    @cached_property
    def steps(self) -> list[Plain]:
        """One object per row and timer, as `--format steps` prints them."""
        return [step.to_plain() for step in self._steps]

    @cached_property
    def _steps(self) -> list[Step]:
        return list(replay_steps(self.plan, self.records, until=self.until, flush=self.flush))

    def iter_steps(self) -> Iterator[Plain]:
        """The same as `steps`, one by one: the first ones are there before the last are known."""
        for step in replay_steps(self.plan, self.records, until=self.until, flush=self.flush):
            yield step.to_plain()

    def match_objects(self) -> list[Plain]:
        """The matches as `--format matches` prints them."""
        row_of = row_numbers(self.records)
        plain = {name: plain_matches(table, row_of) for name, table in self.results.matches.items()}
        return [plain[name][row] for name, row in matches_in_order(self.plan, self.results)]

    def output_objects(self) -> list[Plain]:
        """The outputs as `--format outputs` prints them."""
        return plain_outputs(self.results.outputs)

    def table(self) -> str:
        """The replay as a table for people; of a long one the rows with matches only."""
        rows = len(self.records.rows)
        if rows <= MOST_ROWS:
            return steps_table(self.plan, self._steps)
        steps = match_steps(self.plan, self.results, self.match_objects(), self.output_objects())
        remark = f"matches only, because the tables have {rows} rows; `--format steps` prints them all"
        return f"{steps_table(self.plan, steps)}\n\n({remark})"

    def account(self) -> str:
        """What became of all records: a line, or a table for several queries or sources."""
        return account_text(self.results.ledger)

    def summary(self) -> str:
        """One line: rows, matches, discards."""
        return summary_text(len(self.records.until(self.until).rows), self.results, self.idle)

    def __repr__(self) -> str:
        return f"<Replay: {self.summary()}>"

    def _repr_html_(self) -> str:
        """For notebooks: the summary, the table and the account."""
        text = f"{self.table()}\n\n{self.account()}"
        return f"<p>{escape(self.summary())}</p><pre>{escape(text)}</pre>"

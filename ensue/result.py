"""What a replay gives: matches, outputs, discards, accounts and steps, each in its promised order.

Takes queries and event tables; gives a `Replay`. Tables become pandas DataFrames, steps and the printed table are made
when they are asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ensue.parameters import Parameters, read_parameters
from ensue.queries import Queries, load
from ensue.rendering.account import account_text
from ensue.rendering.replay_table import counted, steps_table
from querylang.errors import InputError
from querylang.parameters.given_values import NOTHING, Given
from querylang.parameters.instances import with_instances
from querylang.plan.model import Plan, QueryPlan
from runtime.columns.arrivals import column_name
from runtime.columns.timestamps import parse_time
from runtime.policies.plan_policies import GivenOrderings, parse_orderings
from runtime.reading.tables import ColumnNames, infer_schemas
from runtime.replay.loading import read_ordered
from runtime.replay.replay import Records, matches_in_order, measured_replay
from runtime.replay.steps import Step, replay_steps, row_numbers
from runtime.results.json_objects import Plain, plain_matches, plain_outputs
from runtime.results.schemas import Results

MATCH_COLUMNS = ("match_id", "query", "instance", "key", "time", "definitive", "emitted", "waited", "members")
SOME_COLUMNS = ("selected", "points")
"""There if a query of the set is a `find every`, or names a wait."""
MOST_ROWS = 2_000
"""Of a longer table only the rows with matches are printed: it is read by people."""


@dataclass(frozen=True)
class Replay:
    """The outcome of a replay. `results` and `figures` are Arrow tables; the properties give what users read.

    `idle`: the queries without an instance, for parameters that have no value.
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
        """What in the tables can hardly be meant, a line each."""
        return self.records.warnings

    @cached_property
    def matches(self) -> pd.DataFrame:
        """One row a match; `key`, `members` and what `SOME_COLUMNS` says are dictionaries, named as in `--format matches`."""
        frames = {name: _match_frame(table, self.records) for name, table in self.results.matches.items()}
        if not frames:
            return pd.DataFrame(columns=list(MATCH_COLUMNS))
        first = dict(zip(frames, _starts([len(frame) for frame in frames.values()]), strict=True))
        columns = [*MATCH_COLUMNS, *(name for name in SOME_COLUMNS if any(name in frame for frame in frames.values()))]
        both = pd.concat([_with_columns(frame, columns) for frame in frames.values()], ignore_index=True)
        order = [first[name] + row for name, row in matches_in_order(self.plan, self.results)]
        return both.iloc[order].reset_index(drop=True)[columns]

    @cached_property
    def outputs(self) -> pd.DataFrame:
        """One row a print, send or error."""
        return _frame(self.results.outputs)

    @cached_property
    def discarded(self) -> pd.DataFrame:
        """One row a refused record (and query, where a query refused it), with the reason."""
        assert self.results.discarded is not None, "a replay has the table"
        frame = _frame(self.results.discarded)
        fields = {event.name: [field.name for field in event.fields] for event in self.plan.events}
        payloads = [
            {name: values[column_name(name, self.plan.event(event).type_of(name))] for name in fields[event]}
            if event is not None
            else None
            for event, values in zip(frame["event"], frame["fields"], strict=True)
        ]
        frame["fields"] = pd.Series(payloads, dtype=object)
        return frame

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """What became of all records: `query`, `source`, `what`, `count`."""
        return self.results.ledger.to_pandas()

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """How the events fit the settings of time, at the end of the replay: `query`, `metric`, `outcome`, `value` (`runtime.engine.metrics`)."""
        return self.figures.to_pandas()

    @cached_property
    def steps(self) -> list[Plain]:
        """One object a row and a timer, as `--format steps` prints them."""
        return [step.to_plain() for step in self._steps]

    @cached_property
    def _steps(self) -> list[Step]:
        return list(replay_steps(self.plan, self.records, until=self.until, flush=self.flush))

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
        if len(self.records.rows) <= MOST_ROWS:
            return steps_table(self.plan, self._steps)
        told = f"matches only: {len(self.records.rows)} rows are too many to look at; `--format steps` has them all"
        return f"{steps_table(self.plan, _match_steps(self))}\n\n({told})"

    def account(self) -> str:
        """What became of all records: a line, or a table where there are several queries or sources."""
        return account_text(self.results.ledger)

    def summary(self) -> str:
        """One line: what became of the records."""
        discarded = self.results.discarded
        reasons = Counter([] if discarded is None else discarded.column("reason").to_pylist())
        matches = sum(len(table) for table in self.results.matches.values())
        told = [counted(len(self.records.until(self.until).rows), "row"), counted(matches, "match", "matches")]
        if reasons:
            told.append(f"{reasons.total()} discarded ({', '.join(f'{n} {reason}' for reason, n in reasons.items())})")
        if self.idle:
            told.append(f"no instance of {', '.join(query.name for query in self.idle)}")
        return ", ".join(told)

    def __repr__(self) -> str:
        return f"<Replay: {self.summary()}>"

    def _repr_html_(self) -> str:
        """For notebooks: the summary, the table and the account."""
        told = f"{self.table()}\n\n{self.account()}"
        return f"<p>{escape(self.summary())}</p><pre>{escape(told)}</pre>"


def run(
    queries: Queries | str | Path,
    events: Any,
    columns: ColumnNames,
    *,
    parameters: Parameters = None,
    ordering: GivenOrderings = None,
    until: str | float | None = None,
    flush: bool = True,
) -> Replay:
    """Read, compile for the data, replay; see `ensue.replay`."""
    loaded, tables = load(queries), as_tables(events)
    moment = None if until is None else parse_time(str(until))
    template = template_for(loaded, tables, columns)
    given = with_instances(template, read_parameters(parameters))
    plan, records = read_ordered(tables, given, columns, parse_orderings(ordering))
    results, figures = measured_replay(plan, records, until=moment, flush=flush)
    running = {query.name for query in plan.queries}
    idle = tuple(query for query in template.queries if query.name not in running)
    return Replay(plan, records, results, figures, moment, flush, idle)


def as_tables(events: Any) -> list[Any]:
    """One table or several: a list of mappings is one table, any other list holds tables."""
    if isinstance(events, list | tuple) and not (events and isinstance(events[0], Mapping)):
        return list(events)
    return [events]


def plan_for(queries: Queries, tables: Sequence[Any], columns: ColumnNames, parameters: Given = NOTHING) -> Plan:
    """The plan for these tables, every query an instance; raises QueryErrors, InputError."""
    return with_instances(template_for(queries, tables, columns), parameters)


def template_for(queries: Queries, tables: Sequence[Any], columns: ColumnNames) -> Plan:
    """The plan for these tables; the fields of types that nothing defines are those that the tables have."""
    if not queries.open_types:
        return queries.template()
    inputs = queries.input_types
    event = inputs[0] if len(inputs) == 1 else ""
    named = {"arrival": columns.arrival, "type": columns.type, "source_time": columns.source_time}
    schemas = infer_schemas(*tables, **named, event=event)
    if not schemas and not event:
        raise InputError(
            f"no table has rows with {columns.type or 'event'!r}, and the queries take {', '.join(inputs)}"
        )
    return queries.template({name: fields for name, fields in schemas.items() if name in queries.open_types})


def _starts(lengths: Sequence[int]) -> list[int]:
    return [sum(lengths[:place]) for place in range(len(lengths))]


def _match_frame(table: pa.Table, records: Records) -> pd.DataFrame:
    frame = table.to_pandas()
    row_of = row_numbers(records)
    for members in frame["members"]:
        for member in filter(None, members.values()):  # an unset name has none
            place = (member.pop("source"), member.pop("partition"), member.pop("offset"))
            fields = member.pop("fields")
            member |= {"row": row_of(*place), "fields": fields}
    return frame


def _with_columns(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    missing = [name for name in columns if name not in frame]
    return frame.assign(**{name: pd.Series([None] * len(frame), dtype=object) for name in missing})


def _frame(table: pa.Table) -> pd.DataFrame:
    return table.select([name for name in table.column_names if not name.startswith("_")]).to_pandas()


def _match_steps(result: Replay) -> list[Step]:
    """A step for each match of a long replay, without the rows that brought nothing."""
    outputs: dict[str, list[Plain]] = {}
    for output in result.output_objects():
        outputs.setdefault(output["match_id"], []).append(output)
    times = {name: _micros(table) for name, table in result.results.matches.items()}
    steps = []
    for match, (name, row) in zip(result.match_objects(), matches_in_order(result.plan, result.results), strict=True):
        at, definitive = times[name][row]
        told = outputs.get(match["match_id"], [])
        steps.append(Step(at=at, definitive=definitive, matches=[match], outputs=told, key=match["key"]))
    return steps


def _micros(table: pa.Table) -> list[tuple[int, int]]:
    """When each match was emitted, and definitive time then."""
    return list(zip(*(pc.cast(table[name], pa.int64()).to_pylist() for name in ("emitted", "definitive")), strict=True))

"""Schemas of the engine's results: tables of matches, outputs, discarded records, the ledger.

Replay prints these tables, Spark ships them, tests compare them. Moments are timestamp[us, UTC]
columns. `_step` and `_rank` only order the rows of one call (see `ORDER`) and are dropped before
users see a table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, field, replace
from querylang.plan.expression import EndOf, type_of
from querylang.plan.model import METADATA, SEVERITY, EventType, Plan, QueryPlan, Select
from querylang.plan.text import SUPPRESSED
from runtime.column_types import arrow_type, made_once
from runtime.columns.arrivals import AT_THE_END, field_columns
from runtime.input_policies import adjusts, has_ends
from runtime.instants import EARLIEST, LATEST, NO_TIME
from runtime.results.matched import FindsMatches, match_order

TIMESTAMP = pa.timestamp("us", "UTC")

TOLD: Mapping[str, pa.DataType] = {METADATA: pa.map_(pa.string(), pa.string()), SEVERITY: pa.string()}
"""The columns that say something about the query of a result (`QueryPlan.told`)."""

ORDER = ("emitted", "_step")
"""What rows are sorted by where they are shown: the moment of their step, then the step itself.

A step is -1 for a timer, for a record its number in order of arrival, AT_THE_END for the end of the
input. Query, key, match time and the order of the *recent* policy (`_rank`) come after that. The
engine promises no order of rows: whoever shows them sorts them (`runtime.replay.replay.in_order`).
"""


def moments(micros: NDArray[np.int64]) -> pa.Array:
    """Microseconds as timestamps, clipped to the years 1 to 9999; NO_TIME is null."""
    least, most = (int(micros.min()), int(micros.max())) if len(micros) else (EARLIEST, EARLIEST)
    if least >= EARLIEST and most <= LATEST:
        return pa.array(micros).view(TIMESTAMP)
    missing = micros == NO_TIME
    return pa.array(np.clip(micros, EARLIEST, LATEST), mask=missing if missing.any() else None).view(TIMESTAMP)


@made_once
def fields_struct(plan: Plan, event: EventType) -> pa.DataType:
    """An event's payload: its fields by name."""
    return pa.struct([(item.name, arrow_type(item.type, plan)) for item in event.fields])


@made_once
def member_struct(plan: Plan, query: QueryPlan, event: EventType) -> pa.DataType:
    """One event of a match: type, times, coordinates, payload; null for an `or` name that is unset.

    If a policy can adjust events, `adjusted` says why one was. If events can be intervals, there is
    `end`, null for points and for events without an end so far.
    """
    return pa.struct(
        [
            ("event", pa.string()),
            ("time", TIMESTAMP),
            ("source_time", TIMESTAMP),
            ("arrival", TIMESTAMP),
            *([("adjusted", pa.string())] if adjusts(query) else []),
            *([("end", TIMESTAMP)] if has_ends(query) else []),
            ("source", pa.string()),
            ("partition", pa.int64()),
            ("offset", pa.int64()),
            ("fields", fields_struct(plan, event)),
        ]
    )


@made_once
def key_struct(plan: Plan, query: QueryPlan) -> pa.DataType:
    """The partition key: one field per key of the query, with its name there."""
    return pa.struct([(key.name, arrow_type(key.type, plan)) for key in query.keys])


@made_once
def match_schema(plan: Plan, query: QueryPlan) -> pa.Schema:
    """One row per match of `query`; with `points` if its waits have names.

    With `suppressed` if it has an `at most`: how many matches were suppressed since the one before.
    With the columns of `TOLD` that its metadata give.
    """
    columns = [
        ("match_id", pa.string()),
        ("query", pa.string()),
        ("instance", pa.string()),
        ("key", key_struct(plan, query)),
        ("time", TIMESTAMP),
        ("definitive", TIMESTAMP),
        ("emitted", TIMESTAMP),
        ("waited", pa.string()),
        *([(SUPPRESSED, pa.int64())] if query.at_most is not None else []),
        *((name, TOLD[name]) for name in query.told),
        ("members", members_struct(plan, query)),
    ]
    if query.every is not None or query.selects:
        columns.append(("selected", selected_struct(plan, query)))
    if point_names(query):
        columns.append(("points", pa.struct([(name, TIMESTAMP) for name in point_names(query)])))
    return pa.schema([*columns, ("_step", pa.int64()), ("_rank", pa.int64())])


@made_once
def members_struct(plan: Plan, query: QueryPlan) -> pa.DataType:
    """The events of a match by their names in the pattern; a `find every` does not keep them.

    A run is a list of events.
    """
    if query.every is not None:
        return pa.struct([])
    return pa.struct([(term.name, _member_type(plan, query, index)) for index, term in enumerate(query.terms)])


def _member_type(plan: Plan, query: QueryPlan, term: int) -> pa.DataType:
    """Of the events of a name."""
    member = member_struct(plan, query, term_event(plan, query, term))
    return member if query.terms[term].group is None else pa.list_(pa.field("element", member))


@made_once
def selected_struct(plan: Plan, query: QueryPlan) -> pa.DataType:
    """What each match selects, by name: events as in `member_struct`, and other values."""
    terms = query.selected_events
    return pa.struct(
        [(select.name, _selected_type(plan, query, select, terms.get(select.name))) for select in query.selected]
    )


def _selected_type(plan: Plan, query: QueryPlan, select: Select, term: int | None) -> pa.DataType:
    """Of a select; `term`: whose event it is."""
    if term is None:
        return arrow_type(type_of(select.value), plan)
    if isinstance(select.value, EndOf):
        return member_struct(plan, query, term_event(plan, query, term))
    return _member_type(plan, query, term)


def term_event(plan: Plan, query: QueryPlan, term: int) -> EventType:
    """The type of a term's events."""
    return plan.event(query.inputs[query.terms[term].input].event)


def is_member(type_: pa.DataType) -> bool:
    """Whether a column's type is a `member_struct`; no type of the language has timestamps."""
    if not pa.types.is_struct(type_):
        return False
    place = type_.get_field_index("source_time")
    return place >= 0 and pa.types.is_timestamp(type_.field(place).type)


def is_run(type_: pa.DataType) -> bool:
    """Whether a column's type is a list of `member_struct`s: the events of a run."""
    return pa.types.is_list(type_) and is_member(type_.value_type)


def point_names(query: QueryPlan) -> list[str]:
    """The names of the query's waits; a match of a `find every` does not have points."""
    waits = [] if query.every is not None else [query.leading, *query.gaps, query.trailing]
    return [wait.name for wait in waits if wait is not None and wait.name is not None]


OUTPUT_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("channel", pa.string()),
        ("text", pa.string()),
        ("event", pa.string()),
        ("query", pa.string()),
        ("instance", pa.string()),
        ("key", pa.string()),
        ("time", TIMESTAMP),
        ("emitted", TIMESTAMP),
        ("match_id", pa.string()),
        *TOLD.items(),
        ("_step", pa.int64()),
        ("_rank", pa.int64()),
    ]
)
"""One row per print, send or error.

event: the event that was sent, as JSON: `{"type": ..., "fields": {...}}`
key: the partition key as JSON
metadata, severity: what the query says of itself; users see the columns of `shown_outputs`
"""


def discard_schema(plan: Plan) -> pa.Schema:
    """One row per discarded record and, if a query refused it, per query."""
    payload = pa.struct([(name, arrow_type(type_, plan)) for name, type_ in field_columns(plan.events).items()])
    return pa.schema(
        [
            ("query", pa.string()),
            ("reason", pa.string()),
            ("event", pa.string()),
            ("source", pa.string()),
            ("partition", pa.int64()),
            ("offset", pa.int64()),
            ("source_time", TIMESTAMP),
            ("arrival", TIMESTAMP),
            ("bound", TIMESTAMP),
            ("text", pa.string()),
            ("fields", payload),
            ("_step", pa.int64()),
        ]
    )


LEDGER_SCHEMA = pa.schema(
    [("query", pa.string()), ("source", pa.string()), ("what", pa.string()), ("count", pa.int64())]
)
"""How many records of a source had which outcome for a query (`runtime.results.ledger`)."""


ADJUSTED_SCHEMA = pa.schema(
    [("query", pa.string()), ("reason", pa.string()), ("time", pa.int64()), ("_step", pa.int64())]
)
"""One row per adjusted record; `time`: the time that it has now, µs."""


# Tables of results without rows, made once: an Arrow table costs time even if it is empty.

NO_OUTPUTS = OUTPUT_SCHEMA.empty_table()

NO_ADJUSTED = ADJUSTED_SCHEMA.empty_table()

NO_LEDGER = LEDGER_SCHEMA.empty_table()


@dataclass(frozen=True, slots=True)
class Results:
    """The results of one `Engine.process`.

    matches: by query title
    outputs: prints, sends and errors
    discarded: discarded records; None = not filled in
    ledger: the changes of this call
    adjusted: adjusted records
    found: by query title, matches that are not in `matches`: they are put in order, and their table
        is gathered, later
    routed: what queries have routed to each other, in total order, as `Arrivals` with the column
        `_step`, the record at its root; None = nothing. Where an engine tells causes: with
        `_cause`, which is the step of what such an event has caused, and `_before`, how many
        records of the call come before it
    """

    matches: dict[str, pa.Table] = field(default_factory=dict)
    outputs: pa.Table = field(default_factory=lambda: NO_OUTPUTS)
    discarded: pa.Table | None = None
    ledger: pa.Table = field(default_factory=lambda: NO_LEDGER)
    adjusted: pa.Table = field(default_factory=lambda: NO_ADJUSTED)
    found: dict[str, FindsMatches] = field(default_factory=dict)
    routed: pa.Table | None = None


_DISCARDS: dict[int, tuple[Plan, pa.Table]] = {}
"""By the identity of a plan, which is kept beside."""

_MOST_PLANS = 64


def no_discards(plan: Plan) -> pa.Table:
    """No discarded record, with the columns of `discard_schema`."""
    known = _DISCARDS.get(id(plan))
    if known is None or known[0] is not plan:
        known = plan, discard_schema(plan).empty_table()
        if len(_DISCARDS) >= _MOST_PLANS:
            _DISCARDS.clear()
        _DISCARDS[id(plan)] = known
    return known[1]


def told_cells(query: QueryPlan) -> dict[str, Any]:
    """What each result says about its query, as cells of `TOLD`: a map as pairs."""
    return {name: list(value.items()) if isinstance(value, dict) else value for name, value in query.told.items()}


def told_columns(query: QueryPlan, count: int) -> dict[str, pa.Array]:
    """The same as columns of so many rows."""
    first = pa.array(np.zeros(count, np.int64))
    return {name: pa.array([cell], TOLD[name]).take(first) for name, cell in told_cells(query).items()}


@made_once
def told_of(plan: Plan) -> list[str]:
    """The columns of `TOLD` that results of some query of the plan have."""
    told = {name for query in plan.queries for name in query.told}
    return [name for name in TOLD if name in told]


def shown_outputs(plan: Plan, outputs: pa.Table) -> pa.Table:
    """Outputs with no other columns of `TOLD` than the plan has."""
    told = told_of(plan)
    hidden = [name for name in TOLD if name not in told]
    return outputs.drop_columns(hidden) if hidden else outputs


def rows_of(nothing: pa.Table, parts: Sequence[pa.Table]) -> pa.Table:
    """The rows of all parts; `nothing`: a table without rows that has their columns."""
    some = [part for part in parts if len(part)]
    return pa.concat_tables(some) if some else nothing


def numbered(table: pa.Table, records: NDArray[np.int64], end: int) -> pa.Table:
    """Rows with other numbers of steps; timers keep their negative ones.

    records: by record, its new number
    end: is added to the number of the end of the input
    """
    if not len(table):
        return table
    place = table.schema.get_field_index("_step")
    step = table.column(place).to_numpy()
    is_record = (step >= 0) & (step < AT_THE_END)
    moved = np.where(step < AT_THE_END, step, step + end)
    if len(records):
        moved = np.where(is_record, records[np.where(is_record, step, 0)], moved)
    return table.set_column(place, table.schema.field(place), pa.array(moved))


# The guaranteed order of a replay's results: by the step that produced them, then query, key, match
# time, and candidate (oldest first).


def in_order(plan: Plan, results: Results, in_order_already: Collection[str] = ()) -> Results:
    """The results with each table in its guaranteed order.

    in_order_already: the titles of queries whose matches are known to be
    """
    tables = {query.title: results.matches[query.title] for query in plan.queries if query.title in results.matches}
    matches = {name: table if name in in_order_already else _sorted_matches(table) for name, table in tables.items()}
    return replace(
        results,
        matches=matches,
        outputs=_sorted_outputs(plan, matches, results.outputs),
        discarded=_sorted_discards(plan, results),
    )


def _sorted_matches(table: pa.Table) -> pa.Table:
    if len(table) == 1:
        return table
    emitted = table.column("emitted").cast(pa.int64()).to_numpy()
    step, time, rank = (table.column(name).cast(pa.int64()).to_numpy() for name in ("_step", "time", "_rank"))
    keys = table.column("key")
    order = match_order(emitted, step, time, rank, lambda rows: keys.take(pa.array(rows)).combine_chunks().flatten())
    return table if (order[1:] > order[:-1]).all() else table.take(pa.array(order))


def _sorted_outputs(plan: Plan, matches: dict[str, pa.Table], outputs: pa.Table) -> pa.Table:
    """Sort outputs, stable: those without a time first, then by step, query and match."""
    if len(outputs) <= 1:
        return outputs
    ids = [table.column("match_id") for table in matches.values()]
    everything = pa.chunked_array([chunk for column in ids for chunk in column.chunks], pa.string())
    place = pc.fill_null(pc.index_in(outputs.column("match_id"), value_set=everything), -1)
    query = pc.fill_null(pc.index_in(outputs.column("query"), value_set=pa.array([q.name for q in plan.queries])), -1)
    emitted = pc.fill_null(outputs.column("emitted").cast(pa.int64()), NO_TIME)
    columns = {"emitted": emitted, "_step": outputs.column("_step"), "query": query, "place": place}
    by = pa.table({**columns, "row": np.arange(len(outputs))})
    return outputs.take(pc.sort_indices(by, sort_keys=[(name, "ascending") for name in by.column_names]))


def _sorted_discards(plan: Plan, results: Results) -> pa.Table | None:
    """Sort refusals, stable: by step and query; those that no query has made first."""
    discarded = results.discarded
    if discarded is None or len(discarded) <= 1:
        return discarded
    names = pa.array(list(dict.fromkeys(query.public_title for query in plan.queries)), pa.string())
    query = pc.fill_null(pc.index_in(discarded.column("query"), value_set=names), -1).to_numpy()
    step = discarded.column("_step").to_numpy()
    order = np.lexsort((query, step))
    return discarded if (order[1:] > order[:-1]).all() else discarded.take(pa.array(order))


def matches_in_order(plan: Plan, results: Results) -> list[tuple[str, int]]:
    """All matches as (query's title, row in its sorted table), by step, query and row."""
    titles, number, row = order_of_matches(plan, results)
    return list(zip([titles[place] for place in number.tolist()], row.tolist(), strict=True))


def order_of_matches(plan: Plan, results: Results) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
    """The same in columns: titles, and by match the number of its query's title, and its row."""
    titles = [query.title for query in plan.queries if query.title in results.matches]
    tables = [results.matches[title] for title in titles]
    counts = np.array([len(table) for table in tables], np.int64)
    number = np.repeat(np.arange(len(tables)), counts)
    row = np.arange(len(number)) - np.repeat(np.cumsum(counts) - counts, counts)
    if not tables:
        return titles, number, row
    both = pa.concat_tables([table.select(["emitted", "_step"]) for table in tables])
    order = np.lexsort((both["_step"].to_numpy(), both["emitted"].cast(pa.int64()).to_numpy()))
    return titles, number[order], row[order]

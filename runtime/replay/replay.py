"""Replay: run the engine over all records of bounded tables, with results in a guaranteed order.

Rows of results are ordered by the step that produced them, then query, key, match time, and
candidate (oldest first).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.plan.model import Plan
from runtime.columns.arrival_order import in_arrival_order
from runtime.columns.arrivals import Arrivals, place_of
from runtime.engine.engine import Engine
from runtime.engine.metrics import metrics_table, output_events
from runtime.engine.query_parts import ROW_FIELD
from runtime.instants import NO_TIME
from runtime.reading.column_names import ColumnNames
from runtime.reading.tables import TableRecords, read_table
from runtime.replay.divided import DividedEngine, can_divide, with_steps
from runtime.replay.gathering import gather
from runtime.results.match_order import match_order
from runtime.results.schemas import OUTPUT_SCHEMA, Results, discard_schema
from runtime.threads import thread_count

CHUNK = 500_000
"""The least number of records per call of the engine: few enough for the processor's caches.

A call also passes over all events in key state, so that a call has at least twice as many records
as those."""


@dataclass(frozen=True, slots=True)
class Records:
    """All records of all tables, in order of arrival.

    arrivals: the records
    rows: by record: its number in its table, from 1
    sources: the names of the tables
    warnings: implausible times, one line per table
    """

    arrivals: Arrivals
    rows: NDArray[np.int64]
    sources: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def until(self, moment: int | None) -> Records:
        """The records that have arrived by a time (µs); None = all."""
        if moment is None:
            return self
        count = int(np.searchsorted(self.arrivals.system("arrival"), moment, side="right"))
        return replace(self, arrivals=Arrivals(self.arrivals.table.slice(0, count)), rows=self.rows[:count])


def read_records(
    tables: Sequence[Any], plan: Plan, columns: ColumnNames | None = None, plans: Sequence[Plan] | None = None
) -> Records:
    """Read event tables and merge them by arrival; equal arrival in the order of the tables.

    plans: by table: the plan that says which columns it needs; None = `plan` for all
    """
    names = source_names(tables)
    each = zip(tables, plans or [plan] * len(tables), names, strict=True)
    parts = [
        read_table(table, own, columns or ColumnNames(), name, place) for place, (table, own, name) in enumerate(each)
    ]
    given = [_as_given(part, place) for place, part in enumerate(parts)]
    merged = Arrivals.concat([Arrivals.empty(plan), *given]).table.unify_dictionaries()
    rows = np.concatenate([np.empty(0, np.int64), *(part.numbers for part in parts)])
    ordered = in_arrival_order(merged.append_column("_row", pa.array(rows))).combine_chunks()
    warnings = tuple(part.warning for part in parts if part.warning is not None)
    return Records(Arrivals(ordered.drop_columns("_row")), ordered.column("_row").to_numpy(), names, warnings)


def _as_given(part: TableRecords, place: int) -> Arrivals:
    """The records of a table; equal arrival in its order, whatever coordinates its columns say."""
    partition, offset = part.arrivals.system("partition"), part.arrivals.system("offset")
    is_numbered = offset - part.numbers == (offset - part.numbers)[:1]
    if is_numbered.all() and (partition == partition[:1]).all():
        return part.arrivals
    return with_rows_as_places(part, place)


def with_rows_as_places(part: TableRecords, place: int) -> Arrivals:
    """The records, placed by the table's place among all, then the row."""
    table = part.arrivals.table
    position = table.schema.get_field_index("_place")
    places = pa.array(place_of(place) + part.numbers)
    return Arrivals(table.set_column(position, table.schema.field(position), places))


def source_names(tables: Sequence[Any]) -> tuple[str, ...]:
    """The names of tables: the file's name, or `table`; repeated names get a number: `table#2`."""
    names: list[str] = []
    for table in tables:
        name = Path(table).name if isinstance(table, str | Path) else "table"
        repeated = sum(1 for other in names if other.partition("#")[0] == name)
        names.append(f"{name}#{repeated + 1}" if repeated else name)
    return tuple(names)


def replay_records(
    plan: Plan, records: Records, *, until: int | None = None, flush: bool = True, matcher: str = "auto"
) -> Results:
    """Run the engine over records; as `measured_replay`, without the metrics."""
    return measured_replay(plan, records, until=until, flush=flush, matcher=matcher)[0]


def measured_replay(
    plan: Plan, records: Records, *, until: int | None = None, flush: bool = True, matcher: str = "auto"
) -> tuple[Results, pa.Table]:
    """Run the engine over records; gives results, and the metrics at the end.

    until: time, µs, at which the replay ends, with its timers; None = as `flush` says
    flush: time advances after the last record until no timer is left; False = it ends there
    matcher: `auto`, `kernel` or `reference`
    """
    table = records.until(until).arrivals.table
    threads = thread_count()
    numbered = iter([table.append_column(ROW_FIELD, pa.array(np.arange(len(table))))])
    engine: Engine | DividedEngine
    if can_divide(plan, table, threads):
        engine = DividedEngine(plan, matcher, threads)
        calls = _divided_calls(engine, numbered, threads, until=until, flush=flush)
        in_order_already: set[str] = set()
    else:
        engine = Engine(plan, matcher, gathers_later=True)
        calls = ([results] for results in replay_calls(engine, numbered, until=until, flush=flush))
        in_order_already = {query.title for query in plan.queries}
    found: list[Results] = []
    for call in calls:
        gathered = _gathered(plan, table, call, threads)
        in_order_already |= gathered.keys()
        found += [Results(matches=gathered), *call]
    ledger = engine.ledger()
    results = in_order(plan, _concat(plan, found, ledger), in_order_already)
    last = engine.latest() if isinstance(engine, DividedEngine) else engine
    return results, metrics_table(last, output_events(results), ledger=ledger)


def _divided_calls(
    engines: DividedEngine, pieces: Iterator[pa.Table], threads: int, *, until: int | None, flush: bool
) -> Iterator[list[Results]]:
    """The results of each call, by engine."""
    for part in _regrouped(pieces, lambda: max(CHUNK * threads, 2 * engines.stored_events())):
        yield engines.process(Arrivals(part))
    if until is not None:
        yield engines.advance_to(until)
    elif flush:
        yield engines.flush()


def _gathered(plan: Plan, table: pa.Table, call: Sequence[Results], threads: int) -> dict[str, pa.Table]:
    """The matches of a call whose columns are gathered only now, in order, by query.

    They are gathered call by call: what one call has touched is still in the processor's caches.
    """
    tables = {}
    for query in plan.queries:
        parts = [one.found[query.title] for one in call if query.title in one.found]
        if parts:
            tables[query.title] = gather(plan, query, table, parts, threads)
    return tables


def replay_calls(
    engine: Engine,
    pieces: Iterator[pa.Table],
    *,
    until: int | None = None,
    flush: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Results]:
    """Run an engine over records, as `measured_replay` does; gives the results of each call.

    pieces: all records that have arrived by `until`, in order of arrival, however they are cut
    progress: is called after each call with the number of records so far

    The results of a call are not in order, but those of an earlier one come first.
    """
    at = 0
    for table in _regrouped(pieces, lambda: max(CHUNK, 2 * engine.stored_events())):
        yield with_steps(engine.process(Arrivals(table)), np.arange(at, at + len(table)), 0)
        at += len(table)
        if progress is not None:
            progress(at)
    if until is not None:
        yield engine.process(Arrivals.empty(engine.plan), now=until)
    elif flush:
        yield with_steps(engine.flush(), np.empty(0, np.int64), at)


def _regrouped(pieces: Iterator[pa.Table], wanted: Callable[[], int]) -> Iterator[pa.Table]:
    """The same rows in tables of the length that is wanted when each one begins."""
    waiting: list[pa.Table] = []
    missing = wanted()
    for piece in pieces:
        while len(piece):
            part, piece = piece.slice(0, missing), piece.slice(missing)  # noqa: PLW2901  what is left of it
            waiting.append(part)
            missing -= len(part)
            if not missing:
                yield _joined(waiting)
                waiting, missing = [], wanted()
    if waiting:
        yield _joined(waiting)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else Arrivals.concat([Arrivals(table) for table in tables]).table


def _concat(plan: Plan, found: Sequence[Results], ledger: pa.Table) -> Results:
    parts: dict[str, list[pa.Table]] = {query.title: [] for query in plan.queries}
    for results in found:
        for name, table in results.matches.items():
            parts[name].append(table)
    discards = [results.discarded for results in found if results.discarded is not None]
    return Results(
        matches={name: pa.concat_tables(tables) for name, tables in parts.items() if tables},
        outputs=pa.concat_tables([OUTPUT_SCHEMA.empty_table(), *(results.outputs for results in found)]),
        discarded=pa.concat_tables([discard_schema(plan).empty_table(), *discards]),
        ledger=ledger,
    )


def in_order(plan: Plan, results: Results, in_order_already: Collection[str] = ()) -> Results:
    """The results with each table in its guaranteed order.

    in_order_already: the titles of queries whose matches are known to be
    """
    tables = {query.title: results.matches[query.title] for query in plan.queries if query.title in results.matches}
    matches = {name: table if name in in_order_already else _sorted_matches(table) for name, table in tables.items()}
    return Results(matches, _sorted_outputs(plan, matches, results.outputs), _sorted_discards(results), results.ledger)


def _sorted_matches(table: pa.Table) -> pa.Table:
    emitted = table.column("emitted").cast(pa.int64()).to_numpy()
    step, time, rank = (table.column(name).cast(pa.int64()).to_numpy() for name in ("_step", "time", "_rank"))
    order = match_order(emitted, step, time, rank, lambda rows: _keys_of(table, rows))
    return table if (order[1:] > order[:-1]).all() else table.take(pa.array(order))


def _keys_of(table: pa.Table, rows: NDArray[np.int64]) -> list[pa.Array]:
    keys = table.column("key").take(pa.array(rows)).combine_chunks()
    return list(keys.flatten())


def _sorted_outputs(plan: Plan, matches: dict[str, pa.Table], outputs: pa.Table) -> pa.Table:
    """Sort outputs, stable: those without a time first, then by step, query and match."""
    if not len(outputs):
        return outputs
    ids = [table.column("match_id") for table in matches.values()]
    everything = pa.chunked_array([chunk for column in ids for chunk in column.chunks], pa.string())
    place = pc.fill_null(pc.index_in(outputs.column("match_id"), value_set=everything), -1)
    query = pc.fill_null(pc.index_in(outputs.column("query"), value_set=pa.array([q.name for q in plan.queries])), -1)
    emitted = pc.fill_null(outputs.column("emitted").cast(pa.int64()), NO_TIME)
    columns = {"emitted": emitted, "_step": outputs.column("_step"), "query": query, "place": place}
    by = pa.table({**columns, "row": np.arange(len(outputs))})
    return outputs.take(pc.sort_indices(by, sort_keys=[(name, "ascending") for name in by.column_names]))


def _sorted_discards(results: Results) -> pa.Table | None:
    discarded = results.discarded
    if discarded is None or not len(discarded):
        return discarded
    by = pa.table({"_step": discarded.column("_step"), "row": np.arange(len(discarded))})
    return discarded.take(pc.sort_indices(by, sort_keys=[("_step", "ascending"), ("row", "ascending")]))


def matches_in_order(plan: Plan, results: Results) -> list[tuple[str, int]]:
    """All matches as (query's title, row in its sorted table), by step, query and row."""
    titles = [query.title for query in plan.queries if query.title in results.matches]
    tables = [results.matches[title] for title in titles]
    if not tables:
        return []
    both = pa.concat_tables([table.select(["emitted", "_step"]) for table in tables])
    number = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    row = np.concatenate([np.arange(len(table)) for table in tables])
    by = pa.table({"emitted": both["emitted"], "_step": both["_step"], "number": number, "row": row})
    order = pc.sort_indices(by, sort_keys=[(name, "ascending") for name in by.column_names])
    chosen = order.to_numpy()
    return list(zip([titles[place] for place in number[chosen].tolist()], row[chosen].tolist(), strict=True))

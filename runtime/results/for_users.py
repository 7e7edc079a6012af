"""Results as users get them: as JSON objects, as tables, in Parquet; and where two queries
differ.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from querylang.dataclass import dataclass
from querylang.plan.library import LOCATION_FIELDS
from querylang.plan.model import METADATA, SEVERITY, Plan, QueryPlan
from querylang.plan.routing import QUERIES_CHANNEL, ROUTE_SOURCE
from querylang.plan.text import SUPPRESSED
from runtime.column_types import has_column, one_chunk
from runtime.columns.arrivals import field_columns
from runtime.interpreter import Dictionary, Event, Location, decimal_text, floating_text, text_of
from runtime.results.matched import Coordinates, routed_place
from runtime.results.schemas import TOLD, Results, is_member, is_run, told_of
from runtime.timestamps import format_time

# Results as JSON objects: matches and outputs, with the names that users rely on.
#
# Moments are ISO 8601 text with microseconds and Z. Numbers that JSON cannot represent (infinity,
# NaN, decimals) are text.

Plain = dict[str, Any]

RowOf = Callable[[str, int, int], int | None]
"""By source, partition and offset of a record its row (from 1) in a table; None = it has none."""


def row_is_offset(_source: str, _partition: int, offset: int) -> int:
    """The `RowOf` of tables whose rows are numbered by their offsets."""
    return offset


def row_number(row_of: RowOf, source: str, partition: int, offset: int) -> int | None:
    """The number of a record's row; None = it is not in a table, as one that a query has routed."""
    if source.startswith(ROUTE_SOURCE):
        return None
    try:
        return row_of(source, partition, offset)
    except KeyError:
        return None


Routes = Mapping[Coordinates, Plain]
"""By place of a routed event, what has routed it: `query`, `instance`, `match_id`, `output`."""


def routes_of(outputs: pa.Table) -> Routes:
    """What these outputs (`OUTPUT_SCHEMA`), those of a match in their order, have routed."""
    if not len(outputs) or not pc.any(pc.is_in(outputs.column("kind"), pa.array(["route", "send"]))).as_py():
        return {}
    found, numbers = dict[Coordinates, Plain](), Counter[tuple[str, str]]()
    rows = outputs.select(["kind", "channel", "query", "instance", "match_id"])
    for kind, channel, query, instance, match in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        number = numbers[query, match]
        numbers[query, match] += 1
        if match and (kind == "route" or (kind == "send" and channel == QUERIES_CHANNEL)):
            told = {"query": query, "instance": instance, "match_id": match, "output": number}
            found[routed_place(query, match, number)] = told
    return found


class PlainMatches:
    """Matches as JSON objects, call after call: a later one may have what an earlier has routed."""

    def __init__(self, row_of: RowOf, routes: Routes | None = None) -> None:
        """`routes`: those of earlier calls, with other queries."""
        self._row_of = row_of
        self.routes = dict(routes or {})

    def of(self, results: Results) -> dict[str, list[Plain]]:
        """By title of a query its matches, as in their table."""
        self.routes.update(routes_of(results.outputs))
        return {name: plain_matches(table, self._row_of, self.routes) for name, table in results.matches.items()}


def plain_matches(table: pa.Table, row_of: RowOf, routes: Routes | None = None) -> list[Plain]:
    """The matches of one query (`match_schema`), one object per match.

    routes: what is known of routed events; a member that is one has `route`, with nulls for what is
        not known
    """
    members = table.column("members").combine_chunks()
    place = _Places(row_of, routes or {})
    terms = {field.name: _plain_name(members.field(field.name), place) for field in members.type}
    columns = {
        "match_id": table.column("match_id").to_pylist(),
        "query": table.column("query").to_pylist(),
        "instance": table.column("instance").to_pylist(),
        "key": [plain_value(key) for key in column_cells(table.column("key"))],
        "time": plain_times(table.column("time")),
        "definitive": plain_times(table.column("definitive")),
        "emitted": plain_times(table.column("emitted")),
        "waited": table.column("waited").to_pylist(),
        **({SUPPRESSED: table.column(SUPPRESSED).to_pylist()} if has_column(table, SUPPRESSED) else {}),
        **{name: column_cells(table.column(name)) for name in TOLD if has_column(table, name)},
        "members": _by_match(terms, len(table)),
    }
    if has_column(table, "selected"):
        selected = table.column("selected").combine_chunks()
        columns["selected"] = _by_match(
            {item.name: _plain_select(selected.field(item.name), place) for item in selected.type}, len(table)
        )
    if has_column(table, "points"):
        points = table.column("points").combine_chunks()
        moments = {field.name: plain_times(points.field(field.name)) for field in points.type}
        columns["points"] = _by_match(moments, len(table))
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _by_match(columns: Mapping[str, Sequence[Any]], count: int) -> list[Plain]:
    return [{name: values[row] for name, values in columns.items()} for row in range(count)]


@dataclass(frozen=True, slots=True)
class _Places:
    """What is said of where an event is from."""

    row_of: RowOf
    routes: Routes

    def row(self, source: str, partition: int, offset: int) -> int | None:
        return row_number(self.row_of, source, partition, offset)

    def route(self, source: str, partition: int, offset: int) -> Plain:
        query = source.removeprefix(ROUTE_SOURCE)
        unknown = {"query": query, "instance": None, "match_id": None, "output": None}
        return self.routes.get((source, partition, offset), unknown)


def _plain_select(column: pa.Array, place: _Places) -> Sequence[Any]:
    is_of_events = is_member(column.type) or is_run(column.type)
    return _plain_name(column, place) if is_of_events else [plain_value(value) for value in column_cells(column)]


def _plain_name(column: pa.Array, place: _Places) -> Sequence[Any]:
    """One object per event, or a list of them for a run."""
    if not is_run(column.type):
        return _plain_members(column, place)
    events = _plain_members(column.flatten(), place)
    counts = column.value_lengths().to_pylist()
    each = iter(events)
    return [[next(each) for _ in range(count)] for count in counts]


def _plain_members(member: pa.StructArray, place: _Places) -> list[Plain | None]:
    """One object per event; None for a name that is unset."""
    if member.null_count:
        is_set = member.is_valid().to_pylist()
        plain = iter(_plain_members(member.filter(member.is_valid()), place))
        return [next(plain) if there else None for there in is_set]
    places = list(zip(*(member.field(name).to_pylist() for name in _PLACE), strict=True))
    columns = {
        "event": member.field("event").to_pylist(),
        "time": plain_times(member.field("time")),
        "source_time": plain_times(member.field("source_time")),
        "arrival": plain_times(member.field("arrival")),
        **_ordering(member),
        "row": [place.row(*each) for each in places],
        "fields": [plain_value(fields) for fields in column_cells(member.field("fields"))],
    }
    events: list[Plain | None] = []
    for values, each in zip(zip(*columns.values(), strict=True), places, strict=True):
        event = dict(zip(columns, values, strict=True))
        if each[0].startswith(ROUTE_SOURCE):
            event["route"] = place.route(*each)
        events.append(event)
    return events


def _ordering(member: pa.StructArray) -> dict[str, list[Any]]:
    """Why events were adjusted, and when they end; only the columns that the query has."""
    names = [field.name for field in member.type]
    columns: dict[str, list[Any]] = {}
    if "adjusted" in names:
        columns["adjusted"] = member.field("adjusted").to_pylist()
    if "end" in names:
        columns["end"] = plain_times(member.field("end"))
    return columns


def plain_outputs(table: pa.Table) -> list[Plain]:
    """Prints, sends and errors (`OUTPUT_SCHEMA`), one object per output.

    Those of a query without metadata say nothing of it.
    """
    columns = {
        "kind": table.column("kind").to_pylist(),
        "channel": table.column("channel").to_pylist(),
        "text": table.column("text").to_pylist(),
        "event": [_parsed(text) for text in table.column("event").to_pylist()],
        "query": table.column("query").to_pylist(),
        "instance": table.column("instance").to_pylist(),
        "key": [_parsed(text) for text in column_cells(table.column("key"))],
        "time": plain_times(table.column("time")),
        "match_id": table.column("match_id").to_pylist(),
    }
    told = {name: column_cells(table.column(name)) for name in TOLD if has_column(table, name)}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    for name, values in told.items():
        for row, value in zip(rows, values, strict=True):
            row.update({} if value is None else {name: value})
    return rows


def _parsed(text: str | None) -> Any:
    return None if text is None else plain_value(json.loads(text))


def plain_times(column: pa.Array | pa.ChunkedArray) -> list[str | None]:
    """A column of timestamps as text."""
    return [None if micros is None else format_time(micros) for micros in pc.cast(column, pa.int64()).to_pylist()]


def plain_value(value: Any) -> Any:
    """A value of the language, or a cell of a column, as JSON can represent it.

    Decimals become text, which keeps their digits. Dictionaries become objects, with the keys as
    text.
    """
    match value:
        case float() if not math.isfinite(value):
            return floating_text(value)
        case Decimal():
            return decimal_text(value)
        case datetime():
            return plain_times(pa.array([value], pa.timestamp("us", "UTC")))[0]
        case list():
            return [plain_value(item) for item in value]
        case Mapping():
            return {text_of(name): plain_value(part) for name, part in value.items()}
        case Dictionary():
            return {text_of(name): plain_value(part) for name, part in value.items()}
        case Event():
            return {name: plain_value(part) for name, part in value.values.items()}
        case Location():
            return dict(zip(LOCATION_FIELDS, map(plain_value, value.corners), strict=True))
    return value


def column_cells(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The cells of a column, with dictionaries as mappings."""
    return column.to_pylist(maps_as_pydicts="lossy")


# Matches and discards as tables: with a struct per name, or with a column per field. The schemas
# before that are in `runtime.results.schemas`.

COMMON = ("match_id", "query", "instance", "time", "definitive", "emitted", "waited")
"""The columns of matches that do not depend on the query."""

_NESTED = ("key", "members", "selected", "points")
_PLACE = ("source", "partition", "offset")


def in_common(plan: Plan, table: pa.Table) -> pa.Table:
    """The columns of a query's matches that those of all queries can have, whatever they bind.

    They are `COMMON`, and what some query says of itself: null where this one says nothing.
    """
    columns = {name: table.column(name) for name in COMMON}
    for name in told_of(plan):
        columns[name] = table.column(name) if has_column(table, name) else pa.nulls(len(table), TOLD[name])
    return pa.table(columns)


def without_order_columns(table: pa.Table) -> pa.Table:
    """The table without the columns that only order its rows."""
    return table.select([name for name in table.column_names if not name.startswith("_")])


def spread_matches(table: pa.Table, query: QueryPlan) -> pa.Table:
    """Matches with one column per name instead of `members`, `selected` and `points`.

    An event is a struct, a `select` its value, a named `wait` its time. A name that is already a
    column's, in upper or lower case, gets a `_` appended: Spark and SQL do not tell them apart.
    `key` is dropped for a query without keys, and so are structs without fields. The matches of a
    text that was replaced keep what they have.
    """
    spread = ("members", "selected", "points")
    has_key = query.keys or table.schema.field("key").type.num_fields
    names = [name for name in table.column_names if name not in spread and (name != "key" or has_key)]
    columns = [table.column(name) for name in names]
    for part in spread:
        if has_column(table, part):
            values = table.column(part).combine_chunks()
            for field in values.type:
                columns.append(pa.chunked_array([values.field(field.name)]))
                names.append(_free_name(field.name, set(map(str.casefold, names)), str.casefold))
    return without_empty_structs(pa.table(columns, names=names))


def flat_matches(table: pa.Table, row_of: RowOf | None, between: str = ".") -> pa.Table:
    """Matches of one query without structs for keys, events, selects and waits.

    The columns of the key, of selects and of waits have their own names. `low.v` is the field `v`
    of the event `low`; `low.time` is one of the event's own columns. A field with the name of such
    a column gets `_` behind its name. A select that is an event has the columns of an event.

    row_of: gives the number of an event's row; None = its source, partition and offset instead
    between: joins the name of an event with that of its column; names that are joined by `_` are
        for Spark, which does not tell upper from lower case
    """
    fold: Callable[[str], str] = str.casefold if between == "_" else str
    names: list[str] = []
    used = {fold(name) for name in COMMON}
    columns: list[pa.Array | pa.ChunkedArray] = []
    for name, whole in zip(table.column_names, table.itercolumns(), strict=True):
        if name not in _NESTED:
            names.append(name)
            used.add(fold(name))
            columns.append(whole)
            continue
        for part, column in _parts(one_chunk(whole), row_of, between):
            names.append(_free_name(part, used, fold))
            used.add(fold(names[-1]))
            columns.append(column)
    return pa.table(columns, names=names)


def flat_paths(schema: pa.Schema) -> list[tuple[str, ...]]:
    """By column of `flat_matches`: the names that lead to its values; rows have offsets as numbers.

    schema: `match_schema`, without runs
    """
    paths: list[tuple[str, ...]] = []
    for field in schema:
        if field.name not in _NESTED:
            paths += [(field.name,)] * (not field.name.startswith("_"))
            continue
        for part in field.type:
            path = (field.name, part.name)
            if not is_member(part.type):
                paths.append(path)
                continue
            others = [own.name for own in part.type if own.name not in ("fields", *_PLACE)]
            paths += [(*path, "fields", own.name) for own in part.type.field("fields").type]
            paths += [(*path, name) for name in (*others, "offset")]
    return paths


def _parts(column: pa.StructArray, row_of: RowOf | None, between: str) -> Iterator[tuple[str, pa.Array]]:
    """The columns of the key, of all events, of selects or of waits; of a run lists."""
    for field in column.type:
        part = column.field(field.name)
        if is_run(field.type):
            counts = part.value_lengths().to_numpy()
            ends = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
            for own, values in _member(part.flatten(), row_of):
                yield f"{field.name}{between}{own}", pa.ListArray.from_arrays(ends, values)
        elif is_member(field.type):
            for own, values in _member(part, row_of):
                yield f"{field.name}{between}{own}", values
        else:
            yield field.name, part


def _member(member: pa.StructArray, row_of: RowOf | None) -> Iterator[tuple[str, pa.Array]]:
    """The columns of one event; null where its name is unset."""
    parts = dict(zip((field.name for field in member.type), member.flatten(), strict=True))
    fields = parts.pop("fields")
    places = [parts.pop(name) for name in _PLACE]
    if row_of is None:
        parts |= dict(zip(_PLACE, places, strict=True))
    elif row_of is row_is_offset:
        is_routed = pc.starts_with(places[0].cast(pa.string()), ROUTE_SOURCE)
        parts["row"] = pc.if_else(is_routed, pa.scalar(None, pa.int64()), places[2])
    else:
        each = zip(*(place.to_pylist() for place in places), member.is_valid().to_pylist(), strict=True)
        parts["row"] = pa.array([row_number(row_of, *place) if there else None for *place, there in each], pa.int64())
    used = set(parts)
    for field, column in zip(fields.type, fields.flatten(), strict=True):
        name = _free_name(field.name, used, str)
        used.add(name)
        yield name, column
    yield from parts.items()


def flat_discards(plan: Plan, discarded: pa.Table, fold: Callable[[str], str] = str) -> pa.Table:
    """Discarded records; the fields of the events that the queries read are columns.

    A field with the name of another column gets `_` behind it.

    fold: two names are one if it makes them equal
    """
    table = without_order_columns(discarded)
    position = table.schema.get_field_index("fields")
    fields = table.column(position).combine_chunks()
    columns = [column for place, column in enumerate(table.columns) if place != position]
    names = [name for name in table.column_names if name != "fields"]
    read = {item.event for query in plan.queries for item in query.inputs}
    for column in field_columns(tuple(event for event in plan.events if event.name in read)):
        names.append(_free_name(column.rpartition(":")[0], set(map(fold, names)), fold))
        columns.append(fields.field(column))
    return pa.table(columns, names=names)


def _free_name(name: str, used: Collection[str], fold: Callable[[str], str]) -> str:
    """`used`: as `fold` makes them."""
    return _free_name(f"{name}_", used, fold) if fold(name) in used else name


def without_empty_structs(table: pa.Table) -> pa.Table:
    """For Parquet and Spark: the table without the empty structs of events that have no fields."""
    fields = [(field.name, _pruned(field.type)) for field in table.schema]
    schema = pa.schema([(name, type_) for name, type_ in fields if type_ is not None])
    return table if schema.equals(table.schema, check_metadata=True) else table.select(schema.names).cast(schema)


def _pruned(type_: pa.DataType) -> pa.DataType | None:
    """The type without empty structs; None = nothing is left of it."""
    if pa.types.is_struct(type_):
        inner = [(field.name, _pruned(field.type)) for field in type_]
        left = [(name, part) for name, part in inner if part is not None]
        return pa.struct(left) if left else None
    if pa.types.is_map(type_):
        item = _pruned(type_.item_type)
        return item and pa.map_(type_.key_type, item)
    if pa.types.is_list(type_):
        element = _pruned(type_.value_type)
        return element and pa.list_(element)
    return type_


# What one query finds and another one does not.

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


def match_difference(first: Iterable[Match], second: Iterable[Match]) -> MatchDifference:
    """Compare matches; each is a row of a table of matches, or of CSV or JSON that holds it."""
    left, right = _counted(first), _counted(second)
    both = left & right
    return MatchDifference(both.total(), _rows(left - both), _rows(right - both))


def _counted(matches: Iterable[Match]) -> Counter[str]:
    return Counter(_text(match) for match in matches)


def _text(match: Match) -> str:
    own = {name: plain_value(value) for name, value in match.items() if name not in OWN and name not in _told(match)}
    return json.dumps(own, sort_keys=True, ensure_ascii=False)


def _told(match: Match) -> Collection[str]:
    """The columns that say something about its query, and not what it has found."""
    cell = match.get(METADATA)
    said = json.loads(cell) if isinstance(cell, str) else cell
    if not isinstance(said, Mapping):
        return ()
    return TOLD if said.get(SEVERITY) == match.get(SEVERITY) else (METADATA,)


def _rows(counted: Counter[str]) -> tuple[Match, ...]:
    rows = [json.loads(text) for text in counted.elements()]
    return tuple(sorted(rows, key=lambda row: (str(row.get("time")), json.dumps(row, sort_keys=True))))


# How the columns of results are stored in Parquet: small and quick to write, for any reader.

_RANDOM_TEXT = "match_id"
"""Identities are hashes: a dictionary of them, or compression, costs time and saves nothing."""


@lru_cache(maxsize=64)
def parquet_settings(schema: pa.Schema) -> Mapping[str, Any]:
    """Arguments for `ParquetWriter`; made once where many queries have the same columns.

    Times and numbers are stored as differences, which are smaller than a dictionary of them and
    quicker to make. Text that repeats has a dictionary.
    """
    columns = dict(_leaves(schema))
    numbers = [path for path, type_ in columns.items() if _is_whole_number(type_)]
    texts = [path for path, type_ in columns.items() if pa.types.is_string(type_) and path != _RANDOM_TEXT]
    return {
        "use_dictionary": texts,
        "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        "compression": {path: "none" if path == _RANDOM_TEXT else "snappy" for path in columns},
    }


def _is_whole_number(type_: pa.DataType) -> bool:
    return pa.types.is_timestamp(type_) or pa.types.is_int64(type_) or pa.types.is_int32(type_)


def _leaves(fields: Any, above: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """What is stored by itself, by its path in Parquet."""
    for field in fields:
        path, type_ = f"{above}{field.name}", field.type
        if pa.types.is_struct(type_):
            yield from _leaves(type_, f"{path}.")
        elif pa.types.is_map(type_):
            entry = [pa.field("key", type_.key_type), pa.field("value", type_.item_type)]
            yield from _leaves(entry, f"{path}.key_value.")
        elif pa.types.is_list(type_):
            yield from _leaves([pa.field("element", type_.value_type)], f"{path}.list.")
        else:
            yield path, type_

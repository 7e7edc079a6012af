"""Matches and discards as users get them: with a struct per name, or with a column per field.

The schemas before that are in `runtime.results.schemas`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np
import pyarrow as pa

from querylang.plan.model import Plan, QueryPlan
from runtime.arrow_types import has_column, one_chunk
from runtime.columns.arrivals import field_columns
from runtime.results.json_objects import RowOf, row_is_offset
from runtime.results.schemas import is_member, is_run

COMMON = ("match_id", "query", "instance", "time", "definitive", "emitted", "waited")
"""The columns of matches that do not depend on the query."""

_NESTED = ("key", "members", "selected", "points")
_PLACE = ("source", "partition", "offset")


def public(table: pa.Table) -> pa.Table:
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
        parts["row"] = places[2]
    else:
        each = zip(*(place.to_pylist() for place in places), member.is_valid().to_pylist(), strict=True)
        parts["row"] = pa.array([row_of(*place) if there else None for *place, there in each], pa.int64())
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
    table = public(discarded)
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

"""Rows of tables beside the stream that a job forgets with a key: those that no longer hold.

What holds is what the table's own file says. Once its owner has removed a row there, and the job
has read that, the row is one of an earlier version, which only the checkpoint has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from job_engine.chance import new_name
from job_engine.deployment import Deployment
from job_engine.durable_files import JobFile
from job_engine.job.checkpoint.job_folder import Reached
from job_engine.job.lookup_files import KeptTable, contents, keep_tables, read_tables, with_kept_tables, write_content
from job_engine.place import Place, names_in
from job_engine.wire.plan_text import read_kept
from job_engine.wire.program import Program
from querylang.dataclass import dataclass, replace
from querylang.errors import counted
from querylang.plan.expression import Expression, FieldOf, KeyOf, PrevOf
from querylang.plan.lookups import lookups_in
from querylang.plan.model import Plan, QueryPlan
from querylang.printable import warn
from runtime.column_types import Integers, one_chunk
from runtime.columns.keys import GivenKey, is_of_key, key_cells, key_sources
from runtime.json_reader import DamagedJson
from runtime.lookup_tables import LookupTable, definition_of, tables_of_plan


@dataclass(frozen=True, slots=True)
class _Request:
    """key: as of `GivenKey`."""

    key: dict[str, Any]


def ask_for_rows(checkpoint: Place, plan: Plan, given: GivenKey) -> list[str]:
    """Let the job forget past rows of a key, soon; returns the tables that have it."""
    known = {item.definition for item in read_tables(checkpoint)}
    names = [table.name for table in tables_of_plan(plan) if definition_of(table) in known]
    names = [name for name in names if name in {table for table, _, _ in _places(plan, given)}]
    if names:
        _file(_folder(checkpoint) / f"{new_name()}.json").write({"version": 1, "key": dict(given.parts)})
    return names


def has_requests(deployment: Deployment) -> bool:
    """Whether something waits that no run has carried out."""
    return bool(deployment.tables) and bool(_requests(deployment.checkpoint))


def without_forgotten(program: Program, deployment: Deployment, reached: Reached) -> Program:
    """The program with tables that have forgotten what waits.

    While a micro-batch is open, nothing is forgotten: it is repeated as it was.
    """
    checkpoint, place = deployment.checkpoint, reached.progress.furthest
    requests = _requests(checkpoint) if reached.batches.open is None else []
    if not requests:
        return program
    kept, plan = read_tables(checkpoint), program.plan()
    if place is not None:
        keys = list(_keys(requests))
        rest = [_without(checkpoint, plan, item, keys, place) for item in kept]
        if rest != list(kept):
            keep_tables(checkpoint, rest)
    for request in requests:
        request.remove()
    return with_kept_tables(program, deployment)


def _keys(requests: Iterable[JobFile[_Request]]) -> Iterator[GivenKey]:
    """The keys of requests; a damaged one is reported, and holds up no job."""
    for request in requests:
        try:
            found = request.read()
        except DamagedJson as error:
            warn(str(error))
            continue
        if found is not None:
            yield GivenKey(found.key)


def _without(checkpoint: Place, plan: Plan, kept: KeptTable, keys: Iterable[GivenKey], place: int) -> KeptTable:
    """The table without rows of these keys that hold for no record behind `place`, µs."""
    table = next((table for table in tables_of_plan(plan) if definition_of(table) == kept.definition), None)
    if table is None:
        return kept
    content = read_kept(table, str((contents(checkpoint) / kept.file).resolve()))
    is_past = content.until <= place + 1
    of_keys = np.zeros(len(content), np.bool_)
    for given in keys:
        for name, position, value in _places(plan, given):
            if name == table.name:
                column = one_chunk(content.column(table.keys[position].name))
                of_keys |= is_of_key([column], [pa.scalar(value, column.type)])
    rest: Integers = np.flatnonzero(~(is_past & of_keys))
    if len(rest) == len(content):
        return kept
    warn(f"table '{table.name}': {counted(len(content) - len(rest), 'row')} of earlier versions forgotten")
    rows = content.rows.take(pa.array(rest))
    content = LookupTable(table, rows, content.since[rest], content.until[rest])
    return replace(kept, file=write_content(checkpoint, content), previous="")


def _places(plan: Plan, given: GivenKey) -> Iterator[tuple[str, int, Any]]:
    """Of each lookup by a part of the key: the table, the place of its key, and the value."""
    for query in plan.queries:
        values = given.values_for(plan, query) if query.tables else None
        if values is None:
            continue
        cells = key_cells(query, [value.as_py() for value in values])
        for lookup in dict.fromkeys(lookups_in(query)):
            for position, key in enumerate(lookup.keys):
                part = _part_of(query, key)
                if part is not None and cells[part] is not None:
                    yield lookup.table, position, cells[part]


def _part_of(query: QueryPlan, key: Expression) -> int | None:
    """Which part of the query's key an expression is; None = it is another value."""
    match key:
        case KeyOf(index=index):
            return index
        case FieldOf(field=field) | PrevOf(field=field):
            for sources in key_sources(query).values():
                for part, source in enumerate(sources):
                    if isinstance(source, FieldOf) and source.field == field:
                        return part
    return None


def _folder(checkpoint: Place) -> Place:
    return checkpoint / "ensue" / "forgotten_rows"


def _requests(checkpoint: Place) -> list[JobFile[_Request]]:
    folder = _folder(checkpoint)
    return [_file(folder / name) for name in names_in(folder) if name.endswith(".json")]


def _file(place: Place) -> JobFile[_Request]:
    return JobFile(place, _Request, "Let the job forget the key again", (1,))

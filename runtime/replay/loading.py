"""Load event tables with ordering policies: the records, and a plan with the policy of each source.

A source is a table, or what the table's column `source` names. Which event types a source has is
found in the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from querylang.errors import nearest
from querylang.plan.model import Plan, TimelineKind
from runtime.columns.arrivals import Arrivals
from runtime.policies.plan_policies import (
    OrderingError,
    Orderings,
    SourceOrdering,
    for_reading,
    policy_of,
    with_ordering,
)
from runtime.reading import ColumnNames, iter_arrivals
from runtime.replay.records import FileRecords, FileToRead, Records, source_names
from runtime.replay.replay import Progress, read_all, read_records

EventsBySource = Mapping[str, Sequence[str]]
"""By source: the event types of its records."""


def read_ordered(
    tables: Sequence[Any],
    plan: Plan,
    columns: Sequence[ColumnNames] | None,
    orderings: Orderings,
    progress: Progress | None = None,
) -> tuple[Plan, Records | FileRecords]:
    """The plan with the policies, and the records. Raises InputError, OrderingError.

    columns: by table: how it is read; None = as is usual
    """
    if not orderings:
        return plan, read_records(tables, plan, columns, progress=progress)
    names = source_names(tables)
    plans = [_for_table(plan, orderings, name) for name in names]
    records = read_all(tables, plan, columns, plans, progress)
    return with_orderings(plan, orderings, names, events_by_source([records.arrivals], plan)), records


def plan_for_files(paths: Sequence[Path], plan: Plan, columns: Sequence[ColumnNames], orderings: Orderings) -> Plan:
    """The plan that `read_ordered` gives, for files that are read in parts and not kept."""
    if not orderings:
        return plan
    names = source_names(paths)
    if orderings.keys() == {None} and orderings[None].timeline in (TimelineKind.KEY, TimelineKind.EVENT_TYPE):
        # Each key or event type has its own timeline, whatever its source: no file is read.
        return with_ordering(plan, [SourceOrdering(None, orderings[None])])
    parts = (
        part
        for path, name, own in zip(paths, names, columns, strict=True)
        for part in iter_arrivals(path, _for_table(plan, orderings, name), own, source=name)
    )
    return with_orderings(plan, orderings, names, events_by_source(parts, plan))


def files_to_read(
    paths: Sequence[Path], plan: Plan, columns: Sequence[ColumnNames], orderings: Orderings
) -> list[FileToRead]:
    """How the files of a replay are read."""
    each = enumerate(zip(paths, source_names(paths), columns, strict=True))
    return [
        FileToRead(path, name, place, _for_table(plan, orderings, name) if orderings else plan, own)
        for place, (path, name, own) in each
    ]


def _for_table(plan: Plan, orderings: Orderings, name: str) -> Plan:
    return for_reading(plan, policy_of(orderings, name))


def with_orderings(plan: Plan, orderings: Orderings, names: Sequence[str], events: EventsBySource) -> Plan:
    """The plan with the policies of the sources. Raises OrderingError.

    orderings: the policies that were chosen, by source
    names: the names of the tables, in order
    events: the event types of each source
    """
    refuse_unknown(orderings, [*names, *events])
    order = {name: place for place, name in enumerate(names)}
    policies = [
        SourceOrdering(source, policy_of(orderings, source), tuple(events[source]))
        for source in sorted(events, key=lambda source: (order.get(source, len(order)), source))
    ]
    seen = {event for its_events in events.values() for event in its_events}
    others = tuple(event.name for event in plan.events if event.name not in seen)
    return with_ordering(plan, [*policies, SourceOrdering(None, orderings.get(None), others)])


def refuse_unknown(orderings: Orderings, names: Sequence[str]) -> None:
    """Raise OrderingError for policies of sources that do not exist."""
    found: list[tuple[str | None, str]] = []
    for source in orderings:
        if source is not None and source not in names:
            meant = nearest(source, names)
            hint = f"did you mean '{meant}'?" if meant is not None else f"there are {', '.join(dict.fromkeys(names))}"
            found.append((source, f"there is no source '{source}'; {hint}"))
    if found:
        raise OrderingError(found)


def events_by_source(parts: Iterable[Arrivals], plan: Plan) -> dict[str, list[str]]:
    """The event types of the records of each source, in the plan's order."""
    found: dict[str, set[int]] = {}
    for part in parts:
        kinds = part.system("kind").astype(np.int64)
        sources = part.table.column("_source").combine_chunks()
        codes = sources.indices.to_numpy(zero_copy_only=False)
        pairs = np.unique(np.stack([codes, kinds])[:, kinds >= 0], axis=1)
        names = sources.dictionary.to_pylist()
        for code, kind in pairs.T.tolist():
            found.setdefault(names[code], set()).add(kind)
    return {source: [plan.events[kind].name for kind in sorted(kinds)] for source, kinds in found.items()}

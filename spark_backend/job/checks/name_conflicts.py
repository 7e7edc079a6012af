"""Names that some file system, Spark or SQL would take for one: refused before a job starts.

Needs only the language and the standard library, because `ensue check` does it too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from querylang.errors import FileErrors, listed
from querylang.plan.model import Plan
from spark_backend.sinks.path_names import folder_name, same_on_disk


def refuse_name_conflicts(file: Path, plan: Plan) -> None:
    """Raise FileErrors if two names give one folder or one column; `file`: the deployment."""
    found = [*_folders(plan), *_columns(plan)]
    if found:
        raise FileErrors(str(file), [(None, message) for message in found])


def _folders(plan: Plan) -> Iterator[str]:
    instances: dict[str, list[str]] = {}
    for query in plan.queries:
        instances.setdefault(query.name, []).append(query.instance)
    for group in _same(list(instances)):
        yield f"the queries {_quoted(group)} would be written to one folder; {_REASON}"
    for name, own in instances.items():
        for group in _same(own) if len(own) > 1 else ():
            yield f"the instances {_quoted(group)} of query '{name}' would be written to one folder; {_REASON}"


def _columns(plan: Plan) -> Iterator[str]:
    for event in plan.events:
        for group in _same([field.name for field in event.fields]):
            yield f"the fields {_quoted(group)} of event '{event.name}' would be one column; {_REASON}"
    for query in plan.queries:
        for group in _same([key.name for key in query.keys]) if len(query.keys) > 1 else ():
            yield f"the keys {_quoted(group)} of query '{query.title}' would be one column; {_REASON}"


_REASON = "some file systems, Spark and SQL do not tell them apart. Rename one of them"


def _same(names: Sequence[str]) -> Iterator[list[str]]:
    """Groups of different names that are the same on some disk."""

    def on_disk(name: str) -> str:
        return same_on_disk(folder_name(name))

    for _, group in groupby(sorted(set(names), key=lambda name: (on_disk(name), name)), on_disk):
        members = list(group)
        if len(members) > 1:
            yield members


def _quoted(names: Sequence[str]) -> str:
    return listed([f"'{name}'" for name in names])

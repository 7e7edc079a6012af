"""Query sets: a path or text to something that can be compiled for the data at hand.

Takes what users write where queries are asked for; gives `Queries`, checked. Event types that nothing defines get their
fields from the data: then the plan is compiled anew for each table's schemas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import querylang
from querylang.checker.checked import Checked
from querylang.errors import InputError, QueryError
from querylang.load import Schemas
from querylang.parameters.given_values import NOTHING, Given
from querylang.parameters.instances import with_instances
from querylang.plan.model import Plan

PATH_SUFFIXES = (".query", ".qry", ".mon", ".yaml")
_NO_TEXT = frozenset("{<(\n")


@dataclass(frozen=True, slots=True)
class Queries:
    """A set of queries without a mistake: `paths` (files, folders) or `text`."""

    paths: tuple[Path, ...]
    text: str | None
    checked: Checked

    @property
    def names(self) -> tuple[str, ...]:
        """The queries' names, in the order of the text."""
        return tuple(query.name for query in self.checked.queries)

    @property
    def warnings(self) -> tuple[QueryError, ...]:
        """What is allowed, but hardly meant."""
        return self.checked.warnings

    @property
    def open_types(self) -> tuple[str, ...]:
        """Event types that the queries take and for which no field is defined: data may say more."""
        taken = dict.fromkeys(event for query in self.checked.queries for event in self._taken_by(query.name))
        fields = {event.name: event.fields for event in self.checked.events}
        return tuple(event for event in taken if not fields.get(event))

    @property
    def input_types(self) -> tuple[str, ...]:
        """The event types that are an input of some query; heartbeats are none."""
        return tuple(dict.fromkeys(item.event for query in self.checked.queries for item in query.inputs))

    def _taken_by(self, name: str) -> list[str]:
        query = next(query for query in self.checked.queries if query.name == name)
        heartbeats = [item.heartbeat.event for item in query.inputs if item.heartbeat is not None]
        return [*(item.event for item in query.inputs), *heartbeats]

    def plan(self, schemas: Schemas | None = None, parameters: Given = NOTHING) -> Plan:
        """Compile for data with these schemas, every query an instance; raises QueryErrors, FileErrors."""
        return with_instances(self.template(schemas), parameters)

    def template(self, schemas: Schemas | None = None) -> Plan:
        """Compile for data with these schemas; parameters have no values yet. Raises QueryErrors."""
        if self.text is not None:
            return querylang.compile_text(self.text, schemas=schemas).plan
        return querylang.compile_paths(self.paths, schemas).plan


def load(source: Queries | str | Path | Sequence[str | Path]) -> Queries:
    """Read queries: files, folders, a list of them, or query text; raises QueryErrors with all mistakes, InputError.

    A `Path`, or a `str` that names an existing file or folder or ends like one (`.query`, `.qry`, `.mon`, `.yaml`), is
    a path; any other `str` is query text.
    """
    if isinstance(source, Queries):
        return source
    if isinstance(source, str) and not is_path(source):
        return Queries((), source, querylang.check_text(source))
    given = [source] if isinstance(source, str | Path) else source
    paths = tuple(Path(path) for path in given)
    return Queries(paths, None, querylang.check_paths(paths))


def is_path(text: str) -> bool:
    """Whether a text where queries are asked for is a path; text that can be neither raises InputError."""
    if text.endswith(PATH_SUFFIXES) or (text and _exists(text)):
        return True
    if not text:
        raise InputError("neither query text nor a path: it is empty")
    if not _NO_TEXT & set(text):
        raise InputError(f"{text}: no such file or folder")
    return False


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # too long for a path, or no path at all
        return False

"""Query sets: checked queries, to be compiled for the data at hand.

The fields of event types that nothing defines come from the data. So a plan is compiled anew for
the schemas of each set of tables.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import querylang
from querylang.checker.checked import Checked
from querylang.dataclass import dataclass, replace
from querylang.errors import InputError, Mistake, QueryError, kind_in_words, near_file
from querylang.load import NAMELESS, PATH_SUFFIXES, Schemas, compile_checked, is_query_text, texts_of, words_of
from querylang.parameters import NOTHING, Given, with_instances
from querylang.plan.model import Plan, QueryPlan
from querylang.plan.routing import source_types
from querylang.printable import warn
from querylang.source import Source
from querylang.system_limits import exists
from runtime.threads import rare_collections

if TYPE_CHECKING:
    from runtime.reading import ColumnNames


@dataclass(frozen=True, slots=True, repr=False)
class Queries:
    """A set of queries without mistakes.

    paths: query files and folders; empty for text
    texts: the query text, or those of the files and the definitions beside them
    checked: the queries after all checks
    """

    paths: tuple[Path, ...]
    texts: tuple[Source, ...]
    checked: Checked

    def __repr__(self) -> str:
        return f"<Queries: {', '.join(self.names)}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The queries' names, in the order of the text."""
        return tuple(query.name for query in self.checked.queries)

    @property
    def warnings(self) -> tuple[QueryError, ...]:
        """What is allowed, but probably a mistake."""
        return self.checked.warnings

    @property
    def open_types(self) -> tuple[str, ...]:
        """Event types that the queries read and that have no defined field: data may add some."""
        read = dict.fromkeys(event for query in self.checked.queries for event in _types_of(query))
        fields = {event.name: event.fields for event in self.checked.events}
        return tuple(event for event in read if not fields.get(event))

    def columns(self, names: ColumnNames) -> ColumnNames:
        """How tables are read for these queries: with types that nothing defines from the data."""
        return replace(names, inferred=frozenset(self.open_types))

    @property
    def input_types(self) -> tuple[str, ...]:
        """The event types that tables have to bring, without heartbeats."""
        return tuple(source_types(self.checked.queries))

    @property
    def known_types(self) -> tuple[str, ...]:
        """The event types that rows can have: defined ones, and those that queries read."""
        read = (event for query in self.checked.queries for event in _types_of(query))
        return tuple(dict.fromkeys([*(event.name for event in self.checked.events), *read]))

    def words(self, names: Collection[str]) -> frozenset[str]:
        """Those of these names that the texts have somewhere, in upper or lower case."""
        return frozenset(words_of(self.texts) & set(names))

    def plan(self, schemas: Schemas | None = None, parameters: Given = NOTHING) -> Plan:
        """Compile for data with these schemas, with values for all parameters.

        Raises QueryErrors and FileErrors.
        """
        return with_instances(self.template(schemas), parameters)

    def template(self, schemas: Schemas | None = None) -> Plan:
        """Compile for data with these schemas; parameters have no values yet.

        Raises QueryErrors.
        """
        if self.checked.is_whole and not schemas:
            return compile_checked(self.checked)
        return querylang.compile_paths(self.texts, schemas).plan


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a plan was made of, so that it can be made again with another text.

    schemas: the fields of event types that nothing defines
    """

    queries: Queries
    schemas: Schemas
    parameters: Given

    def again(self, texts: Sequence[Source]) -> Plan:
        """The plan of other texts. Raises QueryErrors."""
        return with_instances(querylang.compile_paths(texts, self.schemas).plan, self.parameters)


def load_and_warn(queries: Queries | str | Path | Sequence[str | Path]) -> Queries:
    """As `load`; what is suspicious in a text that was not loaded before is logged.

    What is kept for ever is a matter of jobs. Raises QueryErrors and InputError.
    """
    loaded = load(queries)
    if loaded is not queries:
        for warning in loaded.warnings:
            if warning.code != Mistake.KEPT_KEYS.code:
                warn(str(warning).partition("\n")[0])
    return loaded


def load(source: Queries | str | Path | Sequence[str | Path]) -> Queries:
    """Read queries: files, folders, a list of them, or query text.

    A `Path` is a path, and so is a `str` that names an existing file or folder, or ends with
    `.query`, `.qry`, `.mon` or `.yaml`. Any other `str` is query text. Raises QueryErrors with all
    mistakes, and InputError.
    """
    if isinstance(source, Queries):
        return source
    with rare_collections():
        return _loaded(source)


def _loaded(source: str | Path | Sequence[str | Path]) -> Queries:
    if isinstance(source, str) and not is_path(source):
        text = Source(NAMELESS, source)
        return Queries((), (text,), querylang.check_paths([text]))
    given: object = [source] if isinstance(source, str | Path) else source
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise InputError(f"{kind_in_words(given)} is not a query; give a path, a list of paths, or query text")
    for number, path in enumerate(given, 1):
        if not isinstance(path, str | Path):
            raise InputError(f"number {number} of the list of queries: expected a path, not {kind_in_words(path)}")
    paths = tuple(Path(path) for path in given)
    texts = texts_of(paths)
    return Queries(paths, texts, querylang.check_paths(texts))


def is_path(text: str) -> bool:
    """Whether a text is a path, not query text; raises InputError if it can be neither."""
    if text.endswith(PATH_SUFFIXES) or (text and exists(text)):
        return True
    if not text:
        raise InputError("neither query text nor a path: it is empty")
    if not is_query_text(text):
        raise InputError(f"{text}: no such file or folder{near_file(text)}")
    return False


def _types_of(query: QueryPlan) -> list[str]:
    heartbeats = [item.heartbeat.event for item in query.inputs if item.heartbeat is not None]
    return [*(item.event for item in query.inputs), *heartbeats]

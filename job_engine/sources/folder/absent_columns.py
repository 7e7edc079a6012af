"""Which columns a file of a job may lack: as in a replay those that other files have."""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass, field, replace

from job_engine.sources.folder.listed_source import ListedSource
from job_engine.sources.folder.source_watch import watch_of
from job_engine.sources.local_names import readable, shown
from job_engine.sources.reading import Reading
from querylang.errors import InputError
from runtime.partition_paths import keys_of
from runtime.reading.inference.looks import columns_in


@dataclass(slots=True)
class ColumnsOfFolder(Container[str]):
    """The columns of any file that is in a source's folder now; it looks once somebody asks.

    A source that has not brought a record may have a mistake in its settings, or in the queries.
    """

    source: ListedSource
    reading: Reading
    _has: dict[str, bool] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        """Whether some file has a column of this name."""
        text = str(name)
        if text not in self._has:
            found = watch_of(replace(self.source, min_age=0)).new_files(lambda _: False, 0).files
            self._has[text] = any(self._is_in(path, text) for path in sorted(found))
        return self._has[text]

    def _is_in(self, path: str, name: str) -> bool:
        wanted = name.casefold()
        if wanted in map(str.casefold, keys_of(shown(path))):
            return True
        with suppress(InputError), readable(self.source.file(path)) as local:
            return wanted in columns_in(local, [wanted], self.reading.columns)
        return False

"""Files of results, as the driver publishes them, exactly once per micro-batch.

It makes files visible by renaming them once all tasks of the micro-batch have ended. So a
micro-batch that is repeated after a crash writes the same files again: nothing is lost and nothing
is doubled. Readers need no list of valid files: pandas, DuckDB and Spark read the folder.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from job_engine.delta_log import is_table
from job_engine.durable_files import remove, rename
from job_engine.errors import writing_to
from job_engine.place import Place, files_below, in_same_system, local_copy
from job_engine.sinks import kinds
from job_engine.sinks.kinds import Compacted, Compaction, Draft, MicroBatch, Result, Sink
from job_engine.sinks.names import COMPACTING, FIRST_COMPACTED, RESULT_FILE
from querylang.errors import InputError
from runtime.json_reader import json_of_text
from runtime.reading import open_parquet


class Publishing(kinds.Publishing):
    """Folders of files; see `kinds.Publishing`."""

    def refuse_unwritable(self, sink: Sink, parts: Mapping[str, pa.Schema]) -> None:
        """Refuse folders of Delta tables: nobody who reads these would see the files."""
        for part in parts:
            if is_table(sink.folder / part):
                raise InputError(
                    f"{sink.folder / part}: is a Delta table; set `format: delta`, or choose another folder"
                )

    def publish(self, batch: MicroBatch, drafts: Sequence[tuple[Sink, Sequence[Draft]]]) -> None:  # noqa: ARG002
        """Rename the drafts; they are on the disk when this returns."""
        for sink, own in drafts:
            place = partial(in_same_system, sink.folder)
            with writing_to(sink.folder):
                rename([(place(draft.path), place(draft.place)) for draft in own])

    def results(self, sink: Sink) -> Iterator[Result]:
        """The results in a folder, by the names of files."""
        for file in files_below(sink.folder):
            found = RESULT_FILE.fullmatch(file.name)
            if found is not None:
                yield Result(found["identity"], int(found["batch"]), str(file))

    def remove_leftovers(self, sink: Sink, batch: MicroBatch, written: Collection[str]) -> None:
        """Remove the micro-batch's files but those written now, and the checkpoint's drafts."""
        drafts = f".{batch.identity}-"

        def is_left(file: Place) -> bool:
            is_draft = file.name.startswith(drafts) and file.name.endswith(".draft")
            if is_draft or not file.name.startswith(batch.name) or str(file) in written:
                return is_draft
            if _is_compacted(file.name):
                raise _joined(str(file), batch.number - 1)
            return True

        remove([*filter(is_left, files_below(sink.folder.resolve()))])

    def table_of_one_query(self, sink: Sink) -> Place | None:
        """A folder inside the sink's that has files of results."""
        results = (file for file in files_below(sink.folder) if RESULT_FILE.fullmatch(file.name))
        return next((file.parent for file in results if file.parent != sink.folder), None)

    def rows(self, sink: Sink, folder: Place) -> Iterator[dict[str, Any]]:  # noqa: ARG002
        """The rows of all files of results, whatever their formats are."""
        for place in files_below(folder):
            if RESULT_FILE.fullmatch(place.name) is not None:
                with local_copy(place) as file:
                    yield from _rows_of(file)

    def removable(self, name: str, sink: Sink, results: Sequence[Result], last: int) -> list[Place]:  # noqa: ARG002
        """The files; raises InputError for one that has results of earlier micro-batches, too."""
        files = {str(file): file for file in files_below(sink.folder)}
        found = [files[result.place] for result in results if result.place in files]
        self.refuse_joined(results, last)
        return found

    def refuse_joined(self, results: Iterable[Result], last: int) -> None:
        """As `kinds.Publishing.refuse_joined`."""
        for result in results:
            if _is_compacted(result.place.rpartition("/")[2]):
                raise _joined(result.place, last)

    def has_unfinished(self, sink: Sink, identity: str) -> bool:
        """As `kinds.Publishing.has_unfinished`."""
        return any(file.name.lstrip(".").startswith(f"{COMPACTING}{identity}-") for file in files_below(sink.folder))

    def finish(self, sink: Sink, identity: str) -> None:
        """As `kinds.Publishing.finish`."""
        from job_engine.sinks.folder.compaction import finish_interrupted

        finish_interrupted(sink.folder, identity)

    def compact(self, sink: Sink, compaction: Compaction) -> Compacted:
        """Merge small files."""
        from job_engine.sinks.folder.compaction import compact_sink

        return compact_sink(sink, compaction)


PUBLISHING = Publishing()


def _is_compacted(name: str) -> bool:
    found = RESULT_FILE.fullmatch(name)
    return found is not None and int(found["number"]) >= FIRST_COMPACTED


def _joined(file: str, last: int) -> InputError:
    return InputError(
        f"{file}: `ensue compact` has joined results of micro-batches before and behind {last} in it:"
        " restore the sink from a copy, or choose a new one, and restore again"
    )


def _rows_of(file: Path) -> Iterator[dict[str, Any]]:
    match file.suffix:
        case ".parquet":
            with open_parquet(file) as parquet:
                yield from parquet.read().to_pylist(maps_as_pydicts="lossy")
        case ".json":
            with file.open(encoding="utf-8") as lines:
                yield from (json_of_text(line, dict[str, Any]) for line in lines)
        case _:
            with file.open(encoding="utf-8", newline="") as lines:
                yield from csv.DictReader(lines)

"""Files as sources: Spark lists them and remembers which it has processed, workers read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from querylang.errors import InputError
from runtime.replay.replay import source_names
from spark_backend.sources.formats import SourceFormat
from spark_backend.sources.reading import Reading, pack_parts
from spark_backend.wire.packed_rows import PACKED_DDL
from spark_backend.wire.program import Program, load_program
from spark_backend.wire.worker_calls import on_worker

_FILE_SCHEMA = "path string, modificationTime timestamp, length long, content binary"
_MAX_AGE = "100000d"
"""Spark silently ignores files older than `maxFileAge`; no file is older than this."""


@dataclass(frozen=True, slots=True)
class FolderOfFiles:
    """Folders of files of one format; `suffixes`: how the names of its files end."""

    suffixes: tuple[str, ...]

    @property
    def pattern(self) -> str:
        """The names of the format's files, as Spark's option `pathGlobFilter`."""
        words = [suffix.removeprefix(".") for suffix in self.suffixes]
        return f"*.{words[0]}" if len(words) == 1 else f"*.{{{','.join(words)}}}"

    def refuse_unreadable(self, name: str, path: Path, options: Mapping[str, str]) -> None:
        """Refuse a folder that has files, but none of the format."""
        files = [file.name for file in path.iterdir() if file.is_file() and file.name[0] not in "._"]
        if files and "pathGlobFilter" not in options and not any(file.endswith(self.suffixes) for file in files):
            raise InputError(
                f"{path}: no file of the source '{name}' ends in {' or '.join(self.suffixes)}; found '{min(files)}'"
            )

    def sample(self, path: Path) -> Path | None:
        """The oldest file, which Spark processes first."""
        files = [file for file in path.rglob("*") if file.suffix in self.suffixes and file.name[0] not in "._"]
        return min(files, key=lambda file: (file.stat().st_mtime_ns, file.name), default=None)

    def packed(
        self, session: SparkSession, path: Path, options: Mapping[str, str], program: Program, reading: Reading
    ) -> DataFrame:
        """The folder's files as they appear; without an own filter only those of the format."""
        paths = file_stream(session, path, {"pathGlobFilter": self.pattern} | dict(options))
        return packed_files(paths, program, reading)


FORMATS: Mapping[str, SourceFormat] = {
    "parquet": FolderOfFiles((".parquet",)),
    "csv": FolderOfFiles((".csv",)),
    "json": FolderOfFiles((".json", ".jsonl", ".ndjson")),
}


def file_stream(session: SparkSession, folder: Path | str, options: Mapping[str, str]) -> DataFrame:
    """The paths of a folder's files as they appear, oldest first; the content is not read."""
    reader = session.readStream.format("binaryFile").schema(_FILE_SCHEMA).option("maxFileAge", _MAX_AGE)
    for key, value in options.items():
        reader = reader.option(key, value)
    return reader.load(str(folder)).select("path")


def file_list(session: SparkSession, paths: Sequence[Path | str]) -> DataFrame:
    """The paths of files, the names of their sources and their places, as in a replay; one task per
    file."""
    names = enumerate(source_names(paths))
    rows = [(str(Path(path).resolve()), name, place) for path, (place, name) in zip(paths, names, strict=True)]
    return session.createDataFrame(
        session.sparkContext.parallelize(rows, max(1, len(rows))), "path string, source string, place long"
    )


def packed_files(paths: DataFrame, program: Program, reading: Reading) -> DataFrame:
    """Read and pack the files in a column of paths; two more columns may give their sources'
    names and places."""
    run = on_worker("spark_backend.sources.files", "pack_files", program.to_text(), reading.to_text())
    return paths.mapInArrow(run, PACKED_DDL)


def pack_files(program: str, reading: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`, on workers: see `packed_files`."""
    loaded, settings = load_program(program), Reading.of_text(reading)
    for batch in batches:
        for path, *given in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            file = PurePosixPath(local_path(path))
            named = settings
            if given:
                named = replace(settings, source=given[0], place=given[1])
            elif settings.root is not None:
                named = replace(settings, source=settings.prefix + str(file.relative_to(settings.root)))
            arrivals = named.arrivals(str(file), loaded.plan())
            # for the clock, all files are one source
            yield from pack_parts(arrivals, loaded, settings, by_partition=True)


def local_path(uri: str) -> str:
    """The path in a URI of Spark's (`file:/a b/c.csv`); raises InputError if it is not local."""
    scheme = urlsplit(uri.split("/", 1)[0] + "/").scheme
    if scheme not in {"", "file"}:
        raise InputError(f"{uri}: files are read from local or mounted folders only; mount it, or pass a DataFrame")
    path = uri.removeprefix("file:")
    return "/" + path.lstrip("/") if path.startswith("//") else path

"""`ensue match`: find matches on Spark, in batch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ensue.commands.options import EventFiles, Json, QueryFile, with_data_options
from ensue.commands.output import exit_with_no_row_read, print_json, print_line
from ensue.data_options import DataOptions
from ensue.event_tables.store_tables import refuse_store
from ensue.event_tables.table_paths import table_paths
from ensue.queries import load
from querylang.errors import InputError, near_file
from querylang.paths import exists
from spark_backend.versions import refuse_missing_spark


@with_data_options
def match(
    file: QueryFile,
    events: EventFiles,
    data: DataOptions,
    out: Annotated[Path, typer.Option(metavar="PATH", help="A folder for the matches, as Parquet.")],
    as_json: Json = False,
) -> None:
    """Find the matches in event tables on Spark, in batch, and write them as Parquet."""
    refuse_missing_spark()
    from ensue import spark
    from ensue.plans import any_row_is_read
    from job_engine.errors import in_plain_words
    from querylang.errors import counted
    from spark_backend.plain_errors import plain_error

    refuse_store("--out", out)
    if exists(out):
        raise InputError(f"{out}: exists already; matches are written to a new folder")
    paths = [path for given in events for path in table_paths(given)]
    for path in paths:
        if not exists(path):
            raise InputError(f"{path}: no such file or folder{near_file(path)}")
    queries = load(file)
    with in_plain_words({}, plain_error):
        frame = spark.match_files(queries, paths, data)
        frame.write.parquet(str(out.resolve()))
        count = frame.sparkSession.read.parquet(str(out.resolve())).count()
    if as_json:
        print_json({"matches": count, "path": str(out)})
    else:
        print_line(f"{counted(count, 'match', 'matches')} in {out}")
    if not count and not any_row_is_read(queries, paths, data):
        exit_with_no_row_read()

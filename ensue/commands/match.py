"""`ensue match`: find matches on Spark, in batch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ensue.commands.options import EventFiles, Json, QueryFile, with_data_options
from ensue.commands.output import print_json, print_line
from ensue.data_options import DataOptions
from ensue.queries import load
from ensue.table_paths import table_paths
from querylang.errors import InputError
from querylang.paths import exists


@with_data_options
def match(
    file: QueryFile,
    events: EventFiles,
    data: DataOptions,
    out: Annotated[Path, typer.Option(metavar="PATH", help="A folder for the matches, as Parquet.")],
    as_json: Json = False,
) -> None:
    """Find the matches in event tables on Spark, in batch, and write them as Parquet."""
    from ensue import spark
    from querylang.errors import counted

    if exists(out):
        raise InputError(f"{out}: exists already; matches are written to a new folder")
    paths = [path for given in events for path in table_paths(given)]
    for path in paths:
        if not exists(path):
            raise InputError(f"{path}: no such file or folder")
    frame = spark.match_files(load(file), paths, data)
    frame.write.parquet(str(out.resolve()))
    count = frame.sparkSession.read.parquet(str(out.resolve())).count()
    if as_json:
        print_json({"matches": count, "path": str(out)})
    else:
        print_line(f"{counted(count, 'match', 'matches')} in {out}")

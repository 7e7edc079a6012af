"""`ensue verify`: compare the ways of running queries on a user's data."""

from __future__ import annotations

from typing import Annotated

import typer

from ensue.commands.options import EventFiles, Json, QueryFile, with_data_options
from ensue.commands.output import exit_if_types_are_unknown, print_json, print_text, print_warnings
from ensue.data_options import DataOptions


@with_data_options
def verify(
    file: QueryFile,
    events: EventFiles,
    data: DataOptions,
    batches: Annotated[int, typer.Option(metavar="N", min=1, help="Micro-batches of the streams.")] = 3,
    as_json: Json = False,
) -> None:
    """Compare embedded, local, batch and stream on this data; exit code 1 if they differ."""
    from ensue import embedded
    from ensue.verify import compare
    from runtime.reading.plan_needs import input_types

    result = embedded.replay(file, events, data)
    exit_if_types_are_unknown(result.records.unknown_types, input_types(result.plan))
    print_warnings(result.warnings)
    verdict = compare(result, batches)
    if as_json:
        print_json(verdict.to_plain())
    else:
        print_text(verdict.text())
    if not verdict.is_equal:
        raise typer.Exit(1)

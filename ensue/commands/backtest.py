"""Commands that compare matches with labels: `backtest` and `sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ensue.commands import common
from ensue.commands.replay import NoFlush, Until
from ensue.data_options import DataOptions

if TYPE_CHECKING:
    from ensue.rendering.scores import Backtest

Labels = Annotated[
    Path,
    typer.Option(
        metavar="FILE", help="What should have fired: a table with `time`, `start` and `end`, or `row`, and keys."
    ),
]
Within = Annotated[
    str | None, typer.Option(metavar="LENGTH", help="How long behind a label a match still counts: `5 minutes`.")
]
Query = Annotated[str | None, typer.Option("--query", metavar="NAME", help="One query; else all.")]
Picture = Annotated[Path | None, typer.Option(metavar="OUT", help="Draw the scores as an SVG picture, too.")]


@common.with_data_options
def backtest(
    file: common.QueryFile,
    events: common.EventFiles,
    data: DataOptions,
    *,
    labels: Labels,
    within: Within = None,
    query: Query = None,
    until: Until = None,
    no_flush: NoFlush = False,
    svg: Picture = None,
    as_json: common.Json = False,
) -> None:
    """Compare the matches with what should have fired: precision, recall, delay, misses."""
    from runtime.column_types import load_arrow_alone

    load_arrow_alone()
    from ensue import embedded
    from ensue.queries import load

    queries = load(file)
    common.print_query_warnings(queries)
    result = embedded.replay(queries, events, data, until=until, flush=not no_flush)
    common.exit_if_types_are_unknown(result.records.unknown_types, queries.input_types)
    _print(result.backtest(labels, within=within, query=query), svg, as_json=as_json)
    common.print_error(result.account())


@common.with_data_options
def sweep(
    file: common.QueryFile,
    events: common.EventFiles,
    data: DataOptions,
    *,
    labels: Labels,
    vary: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUES", help="Values of a parameter: `least=1,2,5`, `least=1..5 by 0.5`. May be repeated."
        ),
    ],
    within: Within = None,
    query: Annotated[
        str | None, typer.Option("--query", metavar="NAME", help="The query whose parameters they are.")
    ] = None,
    until: Until = None,
    no_flush: NoFlush = False,
    svg: Picture = None,
    as_json: common.Json = False,
) -> None:
    """Try values of a query's parameters, in one replay, against what should have fired."""
    from runtime.column_types import load_arrow_alone

    load_arrow_alone()
    from ensue.queries import load
    from ensue.sweeping import read_vary
    from ensue.sweeping import sweep as swept

    queries = load(file)
    common.print_query_warnings(queries)
    found = swept(
        queries, events, data, labels, read_vary(vary), within=within, query=query, until=until, flush=not no_flush
    )
    _print(found, svg, as_json=as_json)


def _print(found: Backtest, svg: Path | None, *, as_json: bool) -> None:
    if svg is not None:
        from ensue.rendering.scores import draw

        draw(found.scores, svg)
    if as_json:
        common.print_json(found.to_plain())
    else:
        common.print_text(str(found))

"""`ensue explain`: show what queries compile to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ensue.commands.options import Json, QueryFile, with_data_options
from ensue.commands.output import print_error, print_json, print_line, print_text
from ensue.data_options import DataOptions
from ensue.queries import Queries, load
from querylang.errors import QueryErrors
from querylang.plan.model import Plan


@with_data_options
def explain(
    file: QueryFile,
    events: Annotated[
        list[Path] | None, typer.Argument(metavar="[EVENTS...]", help="Tables with the types that nothing defines.")
    ] = None,
    *,
    data: DataOptions,
    dot: Annotated[bool, typer.Option("--dot", help="Print the automaton as a graph for graphviz.")] = False,
    svg: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Draw the automaton as an SVG picture; of several queries each.")
    ] = None,
    program: Annotated[
        bool, typer.Option("--program", help="Print what the kernel interprets: tables, and each condition's program.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what a query compiles to.

    The automaton, the conditions and where each is checked, the state, the matcher, the pushdown.
    """
    from ensue.parameters import read_parameters
    from ensue.rendering import explanation
    from querylang.parameters import with_instances
    from querylang.plan.describe import to_dot
    from runtime.policies.plan_policies import SourceOrdering, parse_orderings, with_ordering
    from runtime.policies.settings_text import parse_forget_keys, with_forget_keys

    plan = _template(load(file), file, events or [], data)
    if data.parameters is not None:
        plan = with_instances(plan, read_parameters(data.parameters))
    plan = with_ordering(plan, [SourceOrdering(*chosen) for chosen in parse_orderings(data.ordering).items()])
    plan = with_forget_keys(plan, parse_forget_keys(data.forget_keys))
    if svg is not None:
        for path in explanation.draw(plan, svg):
            print_line(str(path))
    elif dot:
        print_text("\n\n".join(map(to_dot, plan.queries)))
    elif program:
        print_text(explanation.programs(plan))
    elif as_json:
        print_json(explanation.plain(plan))
    else:
        print_text("\n\n".join(item.text() for item in explanation.explain(plan)))


def _template(queries: Queries, file: Path, events: list[Path], data: DataOptions) -> Plan:
    """The queries before they get their parameters. Raises QueryErrors and InputError."""
    if events:
        from ensue.plans import as_tables, fitted

        return fitted(queries, as_tables(list(events)), data.columns).template
    try:
        return queries.template()
    except QueryErrors:
        if queries.open_types:
            types = ", ".join(queries.open_types)
            print_error(f"nothing defines {types}; a table shows the fields: `ensue explain {file} EVENTS`")
        raise

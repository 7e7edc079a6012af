"""`ensue explain`: show what queries compile to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ensue.commands.options import Json, OrderingPolicies, ParameterValues, QueryFile
from ensue.commands.output import print_json, print_line, print_text
from ensue.queries import load


def explain(
    file: QueryFile,
    events: Annotated[
        list[Path] | None, typer.Argument(metavar="[EVENTS...]", help="Tables with the types that nothing defines.")
    ] = None,
    parameters: ParameterValues = None,
    ordering: OrderingPolicies = None,
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
    from ensue.plans import template_for
    from ensue.rendering import explanation
    from querylang.parameters.instances import with_instances
    from querylang.plan.graph import to_dot
    from runtime.policies.plan_policies import SourceOrdering, parse_orderings, with_ordering
    from runtime.reading.column_names import ColumnNames

    queries = load(file)
    plan = template_for(queries, events, ColumnNames()) if events else queries.template()
    if parameters is not None:
        plan = with_instances(plan, read_parameters(parameters))
    plan = with_ordering(plan, [SourceOrdering(*chosen) for chosen in parse_orderings(ordering).items()])
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

"""What the queries of a plan compile to: as text, as data, as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import querylang
from ensue.rendering.automaton_picture import automaton_svg
from job_engine.wire.partition_groups import describe_pushdown
from querylang.errors import InputError
from querylang.parameters import bind, needed
from querylang.plan.describe import graph_of, to_dot
from querylang.plan.model import Plan, QueryPlan, to_dict
from querylang.printable import one_line, printable
from runtime.matching.choose import listing, why_ended, why_enumerated, why_not_kernel

_UNKNOWN = "known when the parameters have values"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one query compiles to.

    description: the automaton, the conditions, the state
    matcher: `kernel`, or `reference` with the reason
    pushed: what Spark does before the shuffle, a line each
    aggregates: how a `find every` computes them; None = another query
    limit: what ends a search that takes too many steps, and why; None = no search needs it
    """

    query: QueryPlan
    description: str
    matcher: str
    pushed: tuple[str, ...]
    aggregates: str | None
    limit: str | None

    def text(self) -> str:
        """For people."""
        pushed = "".join(f"\n    {one_line(line)}" for line in self.pushed)
        aggregates = f"\n  aggregates\n    {self.aggregates}" if self.aggregates else ""
        limit = f"\n  limit\n    {self.limit}" if self.limit else ""
        matcher = f"\n  matcher\n    {one_line(self.matcher)}{aggregates}{limit}"
        return f"{self.description}{matcher}\n  before the shuffle, on Spark{pushed}"

    def to_plain(self) -> dict[str, Any]:
        """For machines, without the plan, which holds all queries."""
        return {
            "query": self.query.name,
            "instance": self.query.instance,
            "matcher": self.matcher,
            "pushed": list(self.pushed),
            "text": self.text(),
            "dot": to_dot(self.query),
        }


def explain(plan: Plan) -> list[Explanation]:
    """Explain each query of the plan, in order."""
    return [_explanation(plan, query) for query in plan.queries]


def _explanation(plan: Plan, query: QueryPlan) -> Explanation:
    pushed = tuple(describe_pushdown(plan, query))
    return Explanation(query, querylang.describe(query), _matcher(query), pushed, _aggregates(query), why_ended(query))


def _matcher(query: QueryPlan) -> str:
    if needed(query):
        return _UNKNOWN
    reason = why_not_kernel(bind(query, {}, query.instance))
    return "kernel" if reason is None else f"reference: {reason}"


def _aggregates(query: QueryPlan) -> str | None:
    """How `find every` computes its aggregates."""
    if query.every is None:
        return None
    if needed(query):
        return _UNKNOWN
    reason = why_enumerated(bind(query, {}, query.instance))
    return "follow the window" if reason is None else f"all candidates are enumerated for each match: {reason}"


def programs(plan: Plan) -> str:
    """What the kernel interprets for each query: its tables, and the program of each condition."""
    return printable("\n\n".join(_program(query) for query in plan.queries))


def _program(query: QueryPlan) -> str:
    if needed(query):
        return f"query {query.title}\n  {_UNKNOWN}"
    return listing(bind(query, {}, query.instance))


def plain(plan: Plan) -> dict[str, Any]:
    """All explanations and the plan, for machines."""
    return {"queries": [item.to_plain() for item in explain(plan)], **to_dict(plan)}


def draw(plan: Plan, out: Path) -> list[Path]:
    """Write each automaton as SVG; gives the files.

    out: the file; of several queries each has its name after the file's stem
    """
    titles = {query.title: query for query in plan.queries}
    targets = {title: out if len(titles) == 1 else _beside(out, query) for title, query in titles.items()}
    for target in targets.values():
        _refuse_other_files(target)
    for title, target in targets.items():
        _write(target, automaton_svg(graph_of(titles[title])))
    return list(targets.values())


def _refuse_other_files(target: Path) -> None:
    """Raise InputError for a file that is not a picture: it may be a query or a table."""
    try:
        if target.exists() and not (
            target.is_file() and target.read_bytes()[:5] in (b"<?xml", b"<svg>", b"<svg ", b"")
        ):
            raise InputError(f"{target}: is not an SVG picture, so it is not overwritten; write another name")
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror}") from error


def _beside(out: Path, query: QueryPlan) -> Path:
    return out.with_stem("-".join(word for word in (out.stem, query.name, query.instance) if word))


def _write(target: Path, text: str) -> None:
    try:
        target.write_text(text, "utf-8")
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror}") from error

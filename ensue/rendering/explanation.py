"""What the queries of a plan compile to: as text, as data, as a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import querylang
from ensue.rendering.text_table import width_of
from job_engine.wire.partition_groups import describe_pushdown
from querylang.dataclass import dataclass
from querylang.errors import InputError, listed
from querylang.parameters import bind, needed
from querylang.plan.describe import MATCH, Edge, Graph, graph_of, to_dot
from querylang.plan.model import Plan, QueryPlan, to_dict
from querylang.plan.routing import levels, routes_between
from querylang.printable import one_line, printable
from querylang.system_errors import refused
from runtime.matching.choose import limit_of, listing, why_enumerated, why_not_kernel

_UNKNOWN = "known when the parameters have values"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one query compiles to.

    description: the automaton, the conditions, the state
    matcher: `kernel`, or `reference` with the reason
    pushed: what Spark does before the shuffle, a line each
    aggregates: how a `find every` computes them; None = another query
    limit: what ends a search that takes too many steps, and why; None = no search needs it
    feeds: what it routes to other queries, a line each
    fed: what other queries route to it, a line each
    """

    query: QueryPlan
    description: str
    matcher: str
    pushed: tuple[str, ...]
    aggregates: str | None
    limit: str | None
    feeds: tuple[str, ...]
    fed: tuple[str, ...]

    def text(self) -> str:
        """For people."""
        pushed = _lines(self.pushed)
        feeds = f"\n  feeds{_lines(self.feeds)}" if self.feeds else ""
        fed = f"\n  fed by{_lines(self.fed)}" if self.fed else ""
        aggregates = f"\n  aggregates\n    {self.aggregates}" if self.aggregates else ""
        limit = f"\n  limit\n    {self.limit}" if self.limit else ""
        matcher = f"\n  matcher\n    {one_line(self.matcher)}{aggregates}{limit}"
        return f"{self.description}{feeds}{fed}{matcher}\n  before the shuffle, on Spark{pushed}"

    def to_plain(self) -> dict[str, Any]:
        """For machines, without the plan, which holds all queries."""
        return {
            "query": self.query.name,
            "instance": self.query.instance,
            "matcher": self.matcher,
            "pushed": list(self.pushed),
            "feeds": list(self.feeds),
            "fed_by": list(self.fed),
            "text": self.text(),
            "dot": to_dot(self.query),
        }


def explain(plan: Plan) -> list[Explanation]:
    """Explain each query of the plan, in order."""
    hops = routes_between(plan.queries)
    return [_explanation(plan, query, hops) for query in plan.queries]


def _explanation(plan: Plan, query: QueryPlan, hops: Sequence[tuple[str, str, tuple[str, ...]]]) -> Explanation:
    return Explanation(
        query,
        querylang.describe(query),
        _matcher(plan, query),
        tuple(describe_pushdown(plan, query)),
        _aggregates(plan, query),
        limit_of(query),
        tuple(f"{target}, with {listed(events)}" for source, target, events in hops if source == query.name),
        tuple(f"{source}, with {listed(events)}" for source, target, events in hops if target == query.name),
    )


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"\n    {one_line(line)}" for line in lines)


def _matcher(plan: Plan, query: QueryPlan) -> str:
    if needed(query):
        return _UNKNOWN
    reason = why_not_kernel(plan, bind(query, {}, query.instance))
    return "kernel" if reason is None else f"reference: {reason}"


def _aggregates(plan: Plan, query: QueryPlan) -> str | None:
    """How `find every` computes its aggregates."""
    if query.every is None:
        return None
    if needed(query):
        return _UNKNOWN
    reason = why_enumerated(plan, bind(query, {}, query.instance))
    return "follow the window" if reason is None else f"all candidates are enumerated for each match: {reason}"


def programs(plan: Plan) -> str:
    """What the kernel interprets for each query: its tables, and the program of each condition."""
    return printable("\n\n".join(_program(plan, query) for query in plan.queries))


def _program(plan: Plan, query: QueryPlan) -> str:
    if needed(query):
        return f"query {query.title}\n  {_UNKNOWN}"
    return listing(plan, bind(query, {}, query.instance))


def plain(plan: Plan) -> dict[str, Any]:
    """All explanations and the plan, for machines."""
    return {"queries": [item.to_plain() for item in explain(plan)], **to_dict(plan)}


def draw(plan: Plan, out: Path) -> list[Path]:
    """Write each automaton as SVG; gives the files.

    out: the file; of several queries each has its name after the file's stem. If any feeds another,
        the file itself shows which
    """
    titles = {query.title: query for query in plan.queries}
    targets = {
        title: out if len(titles) == 1 else beside(out, query.name, query.instance) for title, query in titles.items()
    }
    program = [out] if routes_between(plan.queries) else []
    for target in (*program, *targets.values()):
        refuse_other_files(target)
    for target in program:
        write_picture(target, program_svg(plan.queries))
    for title, target in targets.items():
        write_picture(target, automaton_svg(graph_of(titles[title])))
    return [*program, *targets.values()]


def refuse_other_files(target: Path) -> None:
    """Raise InputError for a file that is not a picture: it may be a query or a table."""
    try:
        if target.exists() and not (
            target.is_file() and target.read_bytes()[:5] in (b"<?xml", b"<svg>", b"<svg ", b"")
        ):
            raise InputError(f"{target}: is not an SVG picture, so it is not overwritten; write another name")
    except OSError as error:
        raise refused(error, f"{target}: cannot be written") from error


def beside(out: Path, name: str, instance: str) -> Path:
    """The file of one of several queries."""
    return out.with_stem("-".join(word for word in (out.stem, name, instance) if word))


def write_picture(target: Path, text: str) -> None:
    """Write a picture. Raises InputError where it cannot be written."""
    try:
        target.write_text(text, "utf-8")
    except OSError as error:
        raise refused(error, f"{target}: cannot be written") from error


# Draw the automaton of a query as SVG: states from left to right, transitions with conditions.
#
# Automata are small, so the layout is simple. A state's column is the longest way to it from the
# first state. Each transition passes through its text, which takes the first free place: nearest to
# the straight line, and overlapping neither a state nor another text.

RADIUS, MARGIN, ROW, GAP = 22, 24, 110, 34
LINE, LETTER = 16, 7.1
"""Height of a line of text, and the width of a letter in the middle of what fonts have."""
MOST_TRANSITIONS = 250
"""Nobody can read a picture with more, nor do they find a place soon."""
LONGEST_LINE = 44
"""Letters; longer lines of a text are wrapped."""
STYLE = (
    "text{font-family:system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:13px;fill:#1f2933}"
    ".title{font-size:16px;font-weight:600}.name{font-size:11.5px}circle{fill:#fff;stroke:#1f2933;stroke-width:1.5}"
    ".edge{fill:none;stroke:#66737f;stroke-width:1.3}.paper{fill:#fff}"
)
TIP = (
    '<marker id="tip" viewBox="0 0 10 10" refX="10" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0L10 5L0 10z" fill="#66737f"/></marker>'
)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle, by its middle."""

    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: Box) -> bool:
        """Whether the two have a point in common."""
        return (
            abs(self.x - other.x) * 2 < self.width + other.width
            and abs(self.y - other.y) * 2 < self.height + other.height
        )


@dataclass(frozen=True, slots=True)
class Label:
    """A transition with its text, as placed."""

    edge: Edge
    lines: tuple[str, ...]
    box: Box


def automaton_svg(graph: Graph) -> str:
    """The picture of one query's automaton; raises InputError if it is too large."""
    if len(graph.edges) > MOST_TRANSITIONS:
        raise InputError(
            f"query {graph.title}: its automaton has {len(graph.edges)} transitions, more than the"
            f" {MOST_TRANSITIONS} that can be drawn; `--dot` prints it"
        )
    nodes = _places(graph)
    labels = _labels(graph.edges, nodes)
    notes = [graph.title, *(["when the trailing wait ends:", *graph.late] if graph.late else [])]
    boxes = [*nodes.values(), *(label.box for label in labels)]
    left = min(box.x - box.width / 2 for box in boxes) - MARGIN
    top = min(box.y - box.height / 2 for box in boxes) - MARGIN - LINE * (len(notes) + 1)
    wide = max(map(_width, notes)) * 1.25
    width = max(max(box.x + box.width / 2 for box in boxes) - left, wide + MARGIN) + MARGIN
    height = max(box.y + box.height / 2 for box in boxes) - top + MARGIN
    return _picture(
        (left, top, width, height),
        [
            *_text(notes, left + MARGIN, top + MARGIN, "start", "title"),
            *(f'<path class="edge" d="{_path(label, nodes)}" marker-end="url(#tip)"/>' for label in labels),
            *(part for label in labels for part in _label(label)),
            *(part for name, box in nodes.items() for part in _node(name, box)),
        ],
    )


def _picture(view: tuple[float, float, float, float], parts: Iterable[str]) -> str:
    """A whole picture. `view`: left, top, width, height."""
    left, top, width, height = view
    size = f'width="{width:.0f}" height="{height:.0f}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="{left:.0f} {top:.0f} {width:.0f} {height:.0f}">',
        f"<style>{STYLE}</style>",
        f"<defs>{TIP}</defs>",
        f'<rect class="paper" x="{left:.0f}" y="{top:.0f}" {size}/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _places(graph: Graph) -> dict[str, Box]:
    """Where each state is: columns from left to right, wide enough for the texts between them."""
    columns = _columns(graph)
    widest = [0.0] * (max(columns.values()) + 1)
    for edge in graph.edges:
        steps = max(abs(columns[edge.target] - columns[edge.source]), 1)
        place = min(columns[edge.source], columns[edge.target])
        widest[place] = max(widest[place], max(map(_width, _wrapped(edge))) / steps)
    places: dict[str, Box] = {}
    x = 0.0
    for column in range(len(widest)):
        members = [name for name in graph.nodes if columns[name] == column]
        for row, name in enumerate(members):
            y = (row - (len(members) - 1) / 2) * ROW
            places[name] = Box(x, y, RADIUS * 2, RADIUS * 2)
        x += widest[column] + RADIUS * 2 + GAP * 2
    return places


def _columns(graph: Graph) -> dict[str, int]:
    """By state the length of the longest way to it, without a way back; MATCH comes last."""
    targets: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for edge in graph.edges:
        targets[edge.source].append(edge.target)
    ordered: list[str] = []  # every state before those that it leads back to
    _visit(graph.nodes[0], targets, {}, ordered)
    columns = dict.fromkeys(graph.nodes, 0)
    seen: set[str] = set()
    for name in reversed(ordered):
        seen.add(name)
        for target in targets[name]:
            if target not in seen:
                columns[target] = max(columns[target], columns[name] + 1)
    columns[MATCH] = max([columns[MATCH], *(column + 1 for name, column in columns.items() if name != MATCH)])
    return columns


def _visit(name: str, targets: dict[str, list[str]], visited: dict[str, None], ordered: list[str]) -> None:
    """Append a state behind all that it leads to."""
    visited[name] = None
    for target in targets[name]:
        if target not in visited:
            _visit(target, targets, visited, ordered)
    ordered.append(name)


def _labels(edges: Sequence[Edge], nodes: dict[str, Box]) -> list[Label]:
    """Each text at its place; short transitions first, so that long ones go around them."""
    taken = list(nodes.values())
    labels: list[Label] = []
    for edge in sorted(edges, key=lambda edge: abs(nodes[edge.target].x - nodes[edge.source].x) or RADIUS * 99):
        lines = _wrapped(edge)
        size = max(map(_width, lines)), len(lines) * LINE + 6
        box = next(box for box in _candidates(nodes[edge.source], nodes[edge.target], size) if _is_free(box, taken))
        taken.append(box)
        labels.append(Label(edge, lines, box))
    return labels


def _candidates(source: Box, target: Box, size: tuple[float, float]) -> Iterator[Box]:
    """Places for a text, nearest first; of a transition back to its own state above it."""
    x, y = (source.x + target.x) / 2, (source.y + target.y) / 2
    is_back = target.x <= source.x
    distance = float(RADIUS + size[1]) if is_back else 0.0
    while True:
        yield Box(x, y - distance, *size)
        if not is_back:
            yield Box(x, y + distance, *size)
        distance += LINE / 2


def _is_free(box: Box, taken: Sequence[Box]) -> bool:
    return not any(box.overlaps(other) for other in taken)


def _path(label: Label, nodes: dict[str, Box]) -> str:
    """A curve from the one state through the text to the other."""
    source, target, middle = nodes[label.edge.source], nodes[label.edge.target], label.box
    if source == target:
        top, left, right = source.y - RADIUS + 2, source.x - 8, source.x + 8
        handles = f"{left - 36:.1f} {middle.y:.1f} {right + 36:.1f} {middle.y:.1f}"
        return f"M{left:.1f} {top:.1f}C{handles} {right:.1f} {top:.1f}"
    begin, end = _rim(source, middle), _rim(target, middle)
    first, last = (begin[0] + middle.x) / 2, (end[0] + middle.x) / 2
    return (
        f"M{begin[0]:.1f} {begin[1]:.1f}Q{first:.1f} {middle.y:.1f} {middle.x:.1f} {middle.y:.1f}"
        f"Q{last:.1f} {middle.y:.1f} {end[0]:.1f} {end[1]:.1f}"
    )


def _rim(node: Box, towards: Box) -> tuple[float, float]:
    """The point of a state's circle at which a curve through `towards` meets it."""
    x, y = (towards.x - node.x) / 2, towards.y - node.y
    length = (x * x + y * y) ** 0.5 or 1.0
    return node.x + x / length * RADIUS, node.y + y / length * RADIUS


def _wrapped(edge: Edge) -> tuple[str, ...]:
    return tuple(part for line in edge.lines for part in textwrap.wrap(one_line(line), LONGEST_LINE) or [""])


def _width(text: str) -> float:
    return width_of(one_line(text)) * LETTER + 8


def _label(label: Label) -> Iterator[str]:
    box = label.box
    left, top = box.x - box.width / 2, box.y - box.height / 2
    yield f'<rect class="paper" x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"/>'
    yield from _text(label.lines, box.x, top + LINE - 2, "middle", "")


def _node(name: str, box: Box) -> Iterator[str]:
    yield f'<circle cx="{box.x:.1f}" cy="{box.y:.1f}" r="{RADIUS}"/>'
    if name == MATCH:
        yield f'<circle cx="{box.x:.1f}" cy="{box.y:.1f}" r="{RADIUS - 4}" style="fill:none"/>'
    yield f'<text x="{box.x:.1f}" y="{box.y + 4:.1f}" text-anchor="middle" class="name">{escape(name)}</text>'


def _text(lines: Sequence[str], x: float, y: float, anchor: str, first: str) -> Iterator[str]:
    """Lines of text below each other; `first` is the class of the first one."""
    for number, line in enumerate(lines):
        style = f' class="{first}"' if first and not number else ""
        place = f'x="{x:.1f}" y="{y + number * LINE:.1f}"'
        yield f'<text {place} text-anchor="{anchor}"{style}>{escape(one_line(line))}</text>'


# Draw which queries feed which: boxes from left to right, by how many routes lead to them.

HEIGHT, STEP = 34, 70
"""Of the box of a query, and from one to the next below."""


def program_svg(queries: Sequence[QueryPlan]) -> str:
    """The picture of which queries feed which; others are left out."""
    hops = routes_between(queries)
    fed = dict.fromkeys(name for source, target, _ in hops for name in (source, target))
    level_of = levels(queries)
    boxes = _query_places({query.name: level_of[query.title] for query in queries if query.name in fed}, hops)
    left, top = -MARGIN, min(box.y for box in boxes.values()) - HEIGHT - MARGIN
    width = max(box.x + box.width / 2 for box in boxes.values()) - left + MARGIN
    height = max(box.y for box in boxes.values()) + HEIGHT + MARGIN - top
    return _picture(
        (left, top, width, height),
        [
            *(line for source, target, events in hops for line in _hop(boxes[source], boxes[target], events)),
            *(line for name, box in boxes.items() for line in _query(name, box)),
        ],
    )


def _query_places(by_level: dict[str, int], hops: Sequence[tuple[str, str, tuple[str, ...]]]) -> dict[str, Box]:
    """Where each query is: a column for each level, with room for event types before the next."""
    labels = [0.0] * (max(by_level.values()) + 1)
    for source, _, events in hops:
        labels[by_level[source]] = max(labels[by_level[source]], _width(", ".join(events)))
    places: dict[str, Box] = {}
    x = 0.0
    for level, label in enumerate(labels):
        names = [name for name, own in by_level.items() if own == level]
        width = max(_width(name) for name in names) + 16
        for row, name in enumerate(names):
            places[name] = Box(x + width / 2, (row - (len(names) - 1) / 2) * STEP, width, HEIGHT)
        x += width + label + 2 * GAP
    return places


def _hop(source: Box, target: Box, events: Sequence[str]) -> Iterator[str]:
    begin, end = source.x + source.width / 2, target.x - target.width / 2
    middle = (begin + end) / 2
    curve = (
        f"M{begin:.1f} {source.y:.1f}C{middle:.1f} {source.y:.1f} {middle:.1f} {target.y:.1f} {end:.1f} {target.y:.1f}"
    )
    yield f'<path class="edge" d="{curve}" marker-end="url(#tip)"/>'
    place = f'x="{middle:.1f}" y="{(source.y + target.y) / 2 - LINE / 2:.1f}"'
    yield f'<text {place} text-anchor="middle">{escape(one_line(", ".join(events)))}</text>'


def _query(name: str, box: Box) -> Iterator[str]:
    left, top = box.x - box.width / 2, box.y - box.height / 2
    size = f'width="{box.width:.1f}" height="{box.height:.1f}"'
    yield f'<rect x="{left:.1f}" y="{top:.1f}" {size} rx="6" style="fill:#fff;stroke:#1f2933;stroke-width:1.5"/>'
    yield f'<text x="{box.x:.1f}" y="{box.y + 5:.1f}" text-anchor="middle">{escape(one_line(name))}</text>'

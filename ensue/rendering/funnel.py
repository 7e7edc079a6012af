"""How far first steps came in a pattern, as text, table, picture and data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ensue.rendering.explanation import beside, refuse_other_files, write_picture
from ensue.rendering.text_table import shortened, text_table
from querylang.dataclass import asdict, dataclass
from querylang.plan.text import duration_text
from querylang.printable import masked, one_line
from runtime.why import Funnel, FunnelStep, Stop, plain

if TYPE_CHECKING:
    import pandas as pd

SECOND = 1_000_000
"""µs"""


@dataclass(frozen=True)
class FunnelAnswer:
    """How far the first steps of a query came, and why the others stopped where they did.

    Printed it is a table; a notebook shows the picture. `runtime.why.funnel` says exactly what is
    counted.

    counts: the numbers
    """

    counts: Funnel

    @property
    def steps(self) -> tuple[FunnelStep, ...]:
        """The steps in the order of the pattern."""
        return self.counts.steps

    @property
    def matched(self) -> int | None:
        """How many first steps are in matches; None = the query is a `find every`."""
        return self.counts.matched

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row for each step and each reason, with the columns of `funnel_rows`."""
        import pandas as pd

        return pd.DataFrame(list(funnel_rows(self.counts)))

    def to_plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return dict(plain(asdict(self.counts)))

    def svg(self) -> str:
        """The picture."""
        return funnel_svg(self.counts)

    def _repr_svg_(self) -> str:
        return self.svg()

    def __str__(self) -> str:
        """As the command prints it."""
        return funnel_text(self.counts)


def title_of(counts: Funnel) -> str:
    """The query as users see it."""
    return f"{counts.query}/{counts.instance}" if counts.instance else counts.query


def funnel_rows(counts: Funnel) -> Iterator[dict[str, Any]]:
    """A row for each step, and for each reason why first steps stopped there.

    - `query`, `step` (from 1), `name`, `event`
    - `reached`, `share` (of the first steps), `median_seconds` since the step before, `open`
    - `stopped`: how many stopped there for this reason: `what`, and the `clause` of the query;
      nulls where none stopped
    """
    for number, step in enumerate(counts.steps, 1):
        for stop in step.stops or (None,):
            yield {
                "query": title_of(counts),
                "step": number,
                "name": step.name,
                "event": step.event,
                "reached": step.reached,
                "share": _share(step.reached, counts),
                "median_seconds": step.median,
                "open": step.open,
                "what": None if stop is None else stop.what,
                "clause": None if stop is None else masked(stop.clause),
                "stopped": None if stop is None else stop.count,
            }


def _share(reached: int, counts: Funnel) -> float | None:
    first = counts.steps[0].reached
    return reached / first if first else None


# Text.

_HEADER = ("step", "reached", "share", "median time to it", "stopped here", "because of")


def funnel_text(counts: Funnel) -> str:
    """The table for people."""
    rows = [row for step in counts.steps for row in _lines(step, counts)]
    if counts.matched is not None:
        rows.append(("in matches", str(counts.matched), _percent(counts.matched, counts), "", "", ""))
    table = text_table(_HEADER, rows, frozenset(("reached", "share", "stopped here")))
    parts = [f"{title_of(counts)}: {_matches(counts.matches)}", table, *(f"({remark})" for remark in counts.remarks)]
    return masked("\n\n".join(parts))


def _matches(count: int) -> str:
    return "1 match" if count == 1 else f"{count} matches"


def _lines(step: FunnelStep, counts: Funnel) -> Iterator[tuple[str, ...]]:
    """The first line of a step has its numbers; a reason each is on the others."""
    reasons = [(str(stop.count), reason_text(stop)) for stop in step.stops]
    if step.open:
        reasons.append((str(step.open), OPEN))
    first, *others = reasons or [("", "")]
    time = "" if step.median is None else duration_text(round(step.median * SECOND))
    yield (step_text(step), str(step.reached), _percent(step.reached, counts), time, *first)
    for other in others:
        yield ("", "", "", "", *other)


OPEN = "open: more may come"


def step_text(step: FunnelStep) -> str:
    """A step as patterns write it."""
    return f"{step.event} as {step.name}" if step.event else step.name


def reason_text(stop: Stop) -> str:
    """Why, in a few words."""
    if not stop.clause:
        return stop.what
    return stop.clause if stop.clause.startswith(stop.what) else f"{stop.what}: {stop.clause}"


def _percent(reached: int, counts: Funnel) -> str:
    share = _share(reached, counts)
    return "" if share is None else f"{share * 100:.1f} %"


# The picture: a bar for each step, what stopped there beside it.

WIDTH, LEFT, BAR, LINE, TOP, MARGIN = 960, 24, 34, 18, 64, 24
LONGEST = 420
"""Of a bar, for the first steps."""
INK, MUTED, FILL, LOST = "#1f2933", "#66737f", "#9fb1c1", "#e9edf1"
STYLE = (
    f"text{{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:{INK}}}"
    f".title{{font-size:18px;font-weight:650}}.name{{font-size:14px;font-weight:600}}.small{{font-size:12.5px;fill:{MUTED}}}"
)


def funnel_svg(counts: Funnel) -> str:
    """The picture of a funnel."""
    parts, y = list[str](), TOP
    for step in counts.steps:
        drawn, height = _drawn(step, counts, y)
        parts += drawn
        y += height
    if counts.matched is not None:
        parts += _bar("in matches", counts.matched, counts, y)
        y += BAR + LINE + MARGIN
    size = f'width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}"'
    title = f"{title_of(counts)}: {_matches(counts.matches)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            f"<style>{STYLE}</style>",
            f'<text class="title" x="{LEFT}" y="32">{_shown(title)}</text>',
            *parts,
            "</svg>",
        ]
    )


def draw(found: Sequence[Funnel], out: Path) -> None:
    """Write pictures; of several queries each has its name after the file's stem."""
    targets = [out if len(found) == 1 else beside(out, item.query, item.instance) for item in found]
    for target in targets:
        refuse_other_files(target)
    for target, item in zip(targets, found, strict=True):
        write_picture(target, funnel_svg(item))


def _drawn(step: FunnelStep, counts: Funnel, y: int) -> tuple[list[str], int]:
    """The parts of a step, and the height that they take."""
    time = "" if step.median is None else f", {duration_text(round(step.median * SECOND))} after the step before"
    reasons = [f"{stop.count} stopped: {reason_text(stop)}" for stop in step.stops]
    if step.open:
        reasons.append(f"{step.open} {OPEN}")
    parts = [
        *_bar(f"{step_text(step)}{time}", step.reached, counts, y),
        *(
            f'<text class="small" x="{LEFT + LONGEST + 130}" y="{y + LINE + LINE * number}">{_shown(reason)}</text>'
            for number, reason in enumerate(reasons)
        ),
    ]
    return parts, max(BAR + LINE, LINE * (len(reasons) + 1)) + MARGIN


def _bar(name: str, reached: int, counts: Funnel, y: int) -> list[str]:
    share = _share(reached, counts) or 0.0
    number = f"{reached} ({_percent(reached, counts) or 'none'})"
    return [
        f'<text class="name" x="{LEFT}" y="{y}">{_shown(name)}</text>',
        f'<rect x="{LEFT}" y="{y + 8}" width="{LONGEST}" height="{BAR - 8}" rx="3" fill="{LOST}"/>',
        f'<rect x="{LEFT}" y="{y + 8}" width="{LONGEST * share:.1f}" height="{BAR - 8}" rx="3" fill="{FILL}"/>',
        f'<text class="small" x="{LEFT + LONGEST + 10}" y="{y + BAR - 9}">{number}</text>',
    ]


def _shown(text: str) -> str:
    return escape(shortened(masked(one_line(text)), 60))

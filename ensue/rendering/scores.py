"""How matches fit labels, as text, tables, picture and data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ensue.rendering.explanation import refuse_other_files, write_picture
from ensue.rendering.text_table import shortened, text_table
from querylang.dataclass import dataclass
from querylang.errors import counted
from querylang.plan.text import duration_text
from querylang.printable import masked, one_line
from runtime.results.for_users import plain_value
from runtime.timestamps import format_time

if TYPE_CHECKING:
    import pandas as pd

    from runtime.scoring import Label, Score, ScoredMatch

SECOND = 1_000_000
"""µs"""

MOST_LISTED = 5
"""Missed labels and false alarms that are printed; the others are counted."""


@dataclass(frozen=True)
class Backtest:
    """How the matches of queries fit labels; `runtime.scoring` says exactly what is counted.

    Printed it is a table; a notebook shows the picture of a sweep.

    scores: of each query and instance; of a sweep in the order of its values
    remarks: what is not in there
    """

    scores: tuple[Score, ...]
    remarks: tuple[str, ...] = ()

    @property
    def best(self) -> Score:
        """The score with the highest F1; of equal ones the first."""
        return max(self.scores, key=lambda score: -1.0 if score.f1 is None else score.f1)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row for each score, with the columns of `score_row`."""
        return _frame(map(score_row, self.scores))

    @cached_property
    def missed(self) -> pd.DataFrame:
        """A row for each label that no match counts for: `query`, and what `label_row` says."""
        return _frame({"query": score.title, **label_row(item)} for score in self.scores for item in score.missed)

    @cached_property
    def false_alarms(self) -> pd.DataFrame:
        """A row for each match that counts for no label: `query`, `match_id`, keys, `time`."""
        return _frame({"query": score.title, **match_row(item)} for score in self.scores for item in score.false_alarms)

    def to_plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {"scores": [_plain(score) for score in self.scores], "remarks": list(self.remarks)}

    def svg(self) -> str:
        """The picture: precision, recall and F1 of each score."""
        return scores_svg(self.scores)

    def _repr_svg_(self) -> str:
        return self.svg()

    def __str__(self) -> str:
        """As the command prints it."""
        return scores_text(self.scores, self.remarks)


def _frame(rows: Iterator[dict[str, Any]] | map[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(rows))


def score_row(score: Score) -> dict[str, Any]:
    """One score.

    `query`, the parameters of a sweep, `matches`, `hits`, `labels`, `found`, `precision`, `recall`,
    `f1`, and in seconds `delay`, `longest_delay` and `wait`. Nulls where nothing can be divided.
    """
    return {
        "query": score.title,
        **score.parameters,
        **{name: getattr(score, name) for name in ("matches", "hits", "labels", "found")},
        **{name: getattr(score, name) for name in ("precision", "recall", "f1", "delay", "longest_delay", "wait")},
    }


def label_row(label: Label) -> dict[str, Any]:
    """A label: its row in its table, what it restricts, and where it is."""
    place: dict[str, Any] = {"start": format_time(label.start), "end": format_time(label.end)}
    if label.row is not None:
        place = {"row": label.row} if label.source is None else {"source": label.source, "row": label.row}
    return {"label": label.number, **_values(label.keys), **place}


def match_row(match: ScoredMatch) -> dict[str, Any]:
    """A match: its id, keys and time."""
    return {"match_id": match.match_id, **_values(match.keys), "time": format_time(match.time)}


def _values(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain_value(value) for name, value in keys.items()}


def _plain(score: Score) -> dict[str, Any]:
    row = score_row(score)
    for name in score.parameters:
        row.pop(name)
    return {
        **row,
        "parameters": dict(score.parameters),
        "missed": [label_row(label) for label in score.missed],
        "false_alarms": [match_row(match) for match in score.false_alarms],
        "remarks": list(score.remarks),
    }


# Text.


def scores_text(scores: Sequence[Score], remarks: Sequence[str]) -> str:
    """A table with a line for each score, then what was missed and what fired in vain.

    Of a sweep these are only said of the best one.
    """
    parts = [_table(scores)]
    swept = [score for score in scores if score.parameters]
    shown = scores
    if swept:
        best = Backtest(tuple(swept)).best
        parts.append(f"highest F1: {_percent(best.f1)} with {_given(best)}")
        shown = [best]
    for score in shown:
        rows = [label_row(label) for label in score.missed]
        parts += _listed(f"{_name(score)}: {counted(len(rows), 'missed label')}", rows)
        rows = [match_row(match) for match in score.false_alarms]
        parts += _listed(f"{_name(score)}: {counted(len(rows), 'false alarm')}", rows)
    notes = dict.fromkeys([*(remark for score in scores for remark in score.remarks), *remarks])
    return masked("\n\n".join([*parts, *(f"({note})" for note in notes)]))


def _table(scores: Sequence[Score]) -> str:
    names = list(dict.fromkeys(name for score in scores for name in score.parameters))
    has_titles = len({score.query for score in scores}) > 1 or not names
    header = [*(["query"] if has_titles else []), *names, "precision", "recall", "F1", "delay", "longest"]
    rows = [
        [
            *([score.query if names else score.title] if has_titles else []),
            *(_text(score.parameters[name]) if name in score.parameters else "" for name in names),
            f"{_percent(score.precision)} ({score.hits} of {score.matches})".lstrip(),
            f"{_percent(score.recall)} ({score.found} of {score.labels})".lstrip(),
            _percent(score.f1),
            _length(score.delay),
            _length(score.longest_delay),
        ]
        for score in scores
    ]
    return text_table(header, rows, frozenset(header[1:] if has_titles else header))


def _name(score: Score) -> str:
    return score.query if score.parameters else score.title


def _given(score: Score) -> str:
    return ", ".join(f"{name} = {_text(value)}" for name, value in score.parameters.items())


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share * 100:.1f} %"


def _length(seconds: float | None) -> str:
    return "" if seconds is None else duration_text(round(seconds * SECOND))


def _listed(title: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    shown = rows[:MOST_LISTED]
    header = list(dict.fromkeys(name for row in shown for name in row))
    cells = [[shortened(str(row[name]), 60) if row.get(name) is not None else "" for name in header] for row in shown]
    more = f"\nand {len(rows) - MOST_LISTED} more" if len(rows) > MOST_LISTED else ""
    yield f"{title}:\n{text_table(header, cells)}{more}"


# The picture: three lines over the scores, in their order.

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 360, 60, 110, 60, 70
INK, MUTED, RULE = "#1f2933", "#66737f", "#e3e8ee"
LINES = {"precision": "#0b6e99", "recall": "#b4552d", "f1": "#3f7d4e"}
SHOWN = {"precision": "precision", "recall": "recall", "f1": "F1"}
MOST_NAMES = 12
"""Under the picture; of more scores only some are named."""


def draw(scores: Sequence[Score], out: Path) -> None:
    """Write the picture. Raises InputError where another file is there."""
    refuse_other_files(out)
    write_picture(out, scores_svg(scores))


def scores_svg(scores: Sequence[Score]) -> str:
    """The picture of scores."""
    step = (WIDTH - LEFT - RIGHT) / max(1, len(scores) - 1)
    places = [LEFT + step * number for number in range(len(scores))]
    if len(scores) == 1:
        places = [(LEFT + WIDTH - RIGHT) / 2]
    title = " · ".join(dict.fromkeys(score.query for score in scores))
    names = ", ".join(dict.fromkeys(name for score in scores for name in score.parameters))
    parts = [
        f'<text x="{LEFT}" y="28" font-size="17" font-weight="650" fill="{INK}">{_shown(title)}</text>',
        *_grid(),
        *_names_below(scores, places),
        _centred(names, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, 13),
    ]
    for number, (line, color) in enumerate(LINES.items()):
        parts += _line([getattr(score, line) for score in scores], places, color)
        y = TOP + 14 + 20 * number
        parts.append(
            f'<text x="{WIDTH - RIGHT + 18}" y="{y}" font-size="13" font-weight="600" fill="{color}">{SHOWN[line]}</text>'
        )
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    font = "font-family=\"system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif\""
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>', *parts, "</svg>"])


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _grid() -> Iterator[str]:
    for percent in (0, 25, 50, 75, 100):
        y = _y(percent / 100)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{RULE}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" font-size="12" text-anchor="end" fill="{MUTED}">{percent} %</text>'


def _names_below(scores: Sequence[Score], places: Sequence[float]) -> Iterator[str]:
    every = -(-len(scores) // MOST_NAMES)
    for number in range(0, len(scores), every):
        score = scores[number]
        name = ", ".join(map(_text, score.parameters.values())) or score.title
        yield _centred(name, places[number], HEIGHT - BOTTOM + 20, 12)


def _centred(text: str, x: float, y: int, size: int) -> str:
    return f'<text x="{x:.1f}" y="{y}" font-size="{size}" text-anchor="middle" fill="{MUTED}">{_shown(text)}</text>'


def _line(shares: Sequence[float | None], places: Sequence[float], color: str) -> Iterator[str]:
    """A line through what is known; it breaks where something is not."""
    path, is_on = "", False
    for share, x in zip(shares, places, strict=True):
        if share is not None:
            path += f"{'L' if is_on else 'M'}{x:.1f} {_y(share):.1f}"
            yield f'<circle cx="{x:.1f}" cy="{_y(share):.1f}" r="3" fill="{color}"/>'
        is_on = share is not None
    yield f'<path d="{path}" fill="none" stroke="{color}" stroke-width="2"/>'


def _shown(text: str) -> str:
    return escape(shortened(masked(one_line(text)), 60))

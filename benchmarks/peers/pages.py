"""The figures as a table and a chart, as `docs/benchmarks.md` has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks import page
from benchmarks.peers.answers import Measured

COMMAND = "make peers"
LABELS = {
    "ensue": "Ensue, embedded",
    "ensue-spark": "Ensue, `ensue run`",
    "duckdb-sliced": "DuckDB, join in slices",
    "duckdb-window": "DuckDB, window",
    "duckdb-turns": "DuckDB, turning points",
    "flink-by-hand": "Flink 2.3, by hand",
    "flink-cep": "Flink CEP 2.3",
    "flink-sql": "Flink SQL 2.3, `MATCH_RECOGNIZE`",
    "esper": "Esper 9",
    "siddhi": "Siddhi 5.1",
}
_WIDTH, _LEFT, _ROW = 760, 270, 18


def table(figures: Sequence[Measured]) -> str:
    """Markdown: a row per system, a column per question and number of cores; million events a second."""
    columns = sorted({(item.question, item.threads) for item in figures}, key=lambda key: (key[0] != "light", key))
    rates = {(item.system, item.question, item.threads): item.rate for item in figures}
    lines = [
        "| million events a second | " + " | ".join(f"{name}, {_cores(count)}" for name, count in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for system in dict.fromkeys(item.system for item in figures):
        cells = [rates.get((system, *column)) for column in columns]
        shown = ["" if rate is None else _millions(rate) for rate in cells]
        lines.append(f"| {LABELS[system]} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def chart(figures: Sequence[Measured]) -> str:
    """An SVG with a bar per system, question and number of cores."""
    widest, parts, y = max(item.rate for item in figures), [], 10
    for question in dict.fromkeys(item.question for item in figures):
        parts.append(f'<text x="{_LEFT}" y="{y + 14}" font-weight="bold">{question}: million events a second</text>')
        y += 24
        for item in (each for each in figures if each.question == question):
            length = max(1, round(item.rate / widest * (_WIDTH - _LEFT - 60)))
            label = f"{LABELS[item.system].replace('`', '')}, {_cores(item.threads)}"
            colour = "#c2410c" if item.system.startswith("ensue") else "#64748b"
            parts += [
                f'<text x="{_LEFT - 6}" y="{y + 12}" text-anchor="end">{label}</text>',
                f'<rect x="{_LEFT}" y="{y + 2}" width="{length}" height="{_ROW - 5}" fill="{colour}"/>',
                f'<text x="{_LEFT + length + 4}" y="{y + 12}">{_millions(item.rate)}</text>',
            ]
            y += _ROW
        y += 8
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{y}" fill="white"/>', *parts, "</svg>"]) + "\n"


def write(docs: Path, figures: Sequence[Measured]) -> None:
    """Replace the table and the chart of the docs."""
    page.put(docs / "benchmarks.md", COMMAND, table(figures))
    (docs / "images" / "peers.svg").write_text(chart(figures), encoding="utf-8")


def _millions(rate: float) -> str:
    """Two places, three where they would say nothing."""
    return f"{rate / 1e6:.{2 if rate >= 100_000 else 3}f}"


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{count} cores"

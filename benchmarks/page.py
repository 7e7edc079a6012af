"""Figures in `docs/benchmarks.md`: a command writes what stands between two comments."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

END = "<!-- end of the figures -->"


def begin(name: str) -> str:
    """The comment before the figures of a command; behind them comes END."""
    return f"<!-- figures of {name} -->"


def put(page: Path, name: str, text: str) -> None:
    """Replace the figures of a command. Raises ValueError if the page has no place for them."""
    before, mark, rest = page.read_text("utf-8").partition(begin(name))
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"{page} has no place for figures of {name}")
    page.write_text(f"{before}{mark}\n{text}\n{end}{after}", encoding="utf-8")


def markdown(table: Table) -> str:
    """A table as Markdown; its title comes before it."""
    headers = [str(column.header) for column in table.columns]
    rows = zip(*(column.cells for column in table.columns), strict=True)
    lines = [headers, ["---"] * len(headers), *([str(cell) for cell in row] for row in rows)]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table.title}:\n\n{text}" if table.title else text

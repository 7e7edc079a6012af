"""Make `docs/patterns.md` and its pictures from `docs/patterns.yaml`: each pattern is replayed, and shown with its result.

`tools/reference.py` writes them; a test holds that they are up to date.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tools.pattern_picture import draw, events_and_matches
from tools.prose import filled

DOCS = Path(__file__).resolve().parent.parent / "docs"
PICTURES = DOCS / "images" / "patterns"

HEAD = """\
# Patterns by name

<!-- Written by tools/reference.py from patterns.yaml; do not edit. -->
"""

ABOUT = (
    "{count} patterns that people know by name, each with a query, some rows, what it answers and a picture. In the "
    "pictures each line is a key; the events of a match are red, and below them is what each match gives, at the moment of "
    "its answer. To try one, write its two files into a folder and run `ensue replay NAME.query NAME.csv`. The words are "
    "explained in [the language](language.md), and longer examples are the [recipes](recipes.md). For those who come from "
    "elsewhere: [Flink](from-flink.md), [MATCH_RECOGNIZE](from-match-recognize.md), [Siddhi](from-siddhi.md), "
    "[Esper](from-esper.md), [Apama](from-apama.md), [Azure Stream Analytics](from-stream-analytics.md), "
    "[EQL, Sigma, KQL and SPL](from-detection-rules.md)."
)


NEXT = "Next: [recipes](recipes.md), [the language](language.md), [why does my query not fire?](not-firing.md)\n"


def catalogue() -> Mapping[str, list[dict[str, Any]]]:
    """Patterns by section."""
    found: Mapping[str, list[dict[str, Any]]] = yaml.safe_load((DOCS / "patterns.yaml").read_text())
    return found


def pages() -> dict[Path, str]:
    """The page and its pictures."""
    sections = catalogue()
    parts = [HEAD, filled(ABOUT.format(count=sum(map(len, sections.values())))) + "\n"]
    for section, patterns in sections.items():
        links = " · ".join(f"[{item['name']}](#{anchor(item['name'])})" for item in patterns)
        parts.append(filled(f"**{section}:** {links}") + "\n")
    written: dict[Path, str] = {}
    for item in (item for patterns in sections.values() for item in patterns):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            parts.append("\n".join(_section(item)))
            written[PICTURES / f"{file_name(item)}.svg"] = _picture(item)
    return {DOCS / "patterns.md": "\n".join([*parts, NEXT]), **written}


def anchor(title: str) -> str:
    """How GitHub names the place of a title."""
    return "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -").replace(" ", "-")


def file_name(item: Mapping[str, Any]) -> str:
    """The files of a pattern, without suffix."""
    return anchor(item["name"]).replace("-", "_")


def _section(item: Mapping[str, Any]) -> Iterator[str]:
    name = file_name(item)
    Path(f"{name}.query").write_text(item["query"])
    Path(f"{name}.csv").write_text(item["data"])
    yield f"## {item['name']}\n\n{filled(item['says'])}\n"
    yield f"```query {name}.query\n{item['query']}```\n"
    yield f"```csv {name}.csv\n{item['data']}```\n"
    yield f"```text\n{_answers(_replayed(name))}```\n"
    yield f"![{item['name']}](images/patterns/{name}.svg)\n"


def _answers(found: Mapping[str, Any]) -> str:
    """A line per output: the moment of the answer, and the text."""
    moments = {match["match_id"]: match["emitted"] for match in found["matches"]}
    is_of_one_day = len({moment[:10] for moment in moments.values()}) == 1
    lines = []
    for item in found["outputs"]:
        moment = moments.get(item["match_id"], item["time"])
        lines.append(f"{moment[11:19] if is_of_one_day else moment[:19].replace('T', ' ')}  {item['text']}\n")
    return "".join(lines)


def _picture(item: Mapping[str, Any]) -> str:
    rows = list(csv.DictReader(io.StringIO(item["data"])))
    return draw(*events_and_matches(_replayed(file_name(item)), rows))


def _replayed(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_printed(f"ensue replay {name}.query {name}.csv --json"))
    return found


def _printed(command: str) -> str:
    """What a command prints, run in this process."""
    from ensue.cli import command_line

    _, name, *rest = command.split()
    out = io.StringIO()
    environment = dict(os.environ)
    with contextlib.redirect_stdout(out):
        command_line(name)([name, *rest], prog_name="ensue", standalone_mode=False)
    assert dict(os.environ) == environment
    return out.getvalue()

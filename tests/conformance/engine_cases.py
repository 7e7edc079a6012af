"""What other engines' own public tests expect, as cases of ours: the files of `other_engines`.

A file names its engine and where its tests are published. A case has the name of the test that its facts are from, a find
of ours, events as letters (`A1(5)`: an A at second 1 whose `v` is 5, `tests/oracle/letters.py`), and a line per match.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.oracle.events import Row
from tests.oracle.letters import rows
from tests.oracle.query import Query
from tests.oracle.reader import read_find, read_input

FOLDER = Path(__file__).parent / "other_engines"
FILE_KEYS = {"engine", "source", "cases"}
CASE_KEYS = {"test", "find", "inputs", "events", "matches", "theirs", "why", "sql", "import"}


@dataclass(frozen=True, slots=True)
class EngineCase:
    """One case.

    matches: a text per match, in order
    theirs: those of the other engine where they differ, and `why`
    sql: the end of a row pattern over `T`, from `AFTER MATCH SKIP` or `PATTERN` on; "" = it is not one
    imported: `translated`, or a part of the message that says what is not
    """

    name: str
    find: str
    inputs: str
    events: str
    matches: tuple[str, ...]
    theirs: tuple[str, ...] | None
    why: str
    sql: str = ""
    imported: str = ""

    def rows(self) -> list[Row]:
        return rows(self.events)

    def definitions(self) -> str:
        """The event types."""
        types = [read_input(item).type for item in self.inputs.split(";")]
        return "".join(f"event {name} {{ integer id; integer v; string s; }}\n" for name in types)

    def text(self) -> str:
        """The query file."""
        items = [read_input(item) for item in self.inputs.split(";")]
        inputs = "".join(f"    {item.text(())}\n" for item in items)
        return f"{self.definitions()}query Q {{\n  inputs {{\n{inputs}  }}\n  find {self.find};\n}}\n"

    def sql_text(self) -> str:
        """The row pattern as a file; the clause of the case is its third line."""
        return f"SELECT * FROM T MATCH_RECOGNIZE (\n  ORDER BY at\n  {self.sql}\n)\n"

    def records(self) -> list[dict[str, Any]]:
        """The event table."""
        return [
            {"at": f"{at:.3f}", "event": row.type, "id": row.number, "v": row.v, "s": row.s}
            for row in self.rows()
            for at in [row.at / 1_000_000]
        ]

    def asked(self) -> Query:
        """What the oracle is asked."""
        return read_find(self.find, self.inputs)


def engine_cases() -> list[EngineCase]:
    """All of them, file by file."""
    return [case for file in sorted(FOLDER.glob("*.yaml")) for case in cases_of(file)]


def cases_of(file: Path) -> list[EngineCase]:
    read = yaml.load(file.read_text("utf-8"), Loader=yaml.CSafeLoader)
    assert set(read) == FILE_KEYS, file.name
    return [as_case(file.stem, case) for case in read["cases"]]


def as_case(stem: str, read: Mapping[str, Any]) -> EngineCase:
    assert set(read) <= CASE_KEYS, f"{read['test']}: {set(read) - CASE_KEYS}"
    assert ("theirs" in read) == ("why" in read), read["test"]
    assert ("sql" in read) == ("import" in read), read["test"]
    events = str(read["events"])
    letters = "; ".join(sorted({word[0] for word in events.split()}))
    theirs = lines_of(read["theirs"]) if "theirs" in read else None
    find = " ".join(read["find"].split())
    name = f"{stem}.{read['test']}"
    return EngineCase(
        name,
        find,
        read.get("inputs", letters),
        events,
        lines_of(read["matches"]),
        theirs,
        read.get("why", ""),
        read.get("sql", ""),
        read.get("import", ""),
    )


def lines_of(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())

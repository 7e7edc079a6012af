"""Tables of one call that differ by a column: one that a table lacks is null there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue

DEFINED = """event A { string k; integer n; string note; }
query Q { inputs { A() key k retain 2; } find A as a -> A as b where b.n > a.n { print b.k; } }
"""
OPEN = "query Q { inputs { A() key k retain 2; } find A as a -> A as b where b.n > a.n }"
WHOLE = [{"at": 1, "k": "x", "n": 1, "note": "a"}, {"at": 2, "k": "x", "n": 2, "note": "b"}]
SHORT = [{"at": 3, "k": "x", "n": 3}, {"at": 4, "k": "x", "n": 4}]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows as a file, by its suffix."""
    if path.suffix == ".csv":
        pd.DataFrame(rows).to_csv(path, index=False)
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("text", [DEFINED, OPEN], ids=["defined", "open"])
@pytest.mark.parametrize("tables", [(WHOLE, SHORT), (SHORT, WHOLE)], ids=["fewer", "more"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_a_column_that_a_file_of_a_folder_lacks_is_null(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, tables: tuple[Any, Any], suffix: str
) -> None:
    for number, rows in enumerate(tables):
        written(tmp_path / f"{number}{suffix}", rows)
    result = ensue.replay(text, tmp_path)
    assert [match["members"]["b"]["fields"].get("note") for match in result.match_objects()] == ["b", None, None]
    lacking = f"{tables.index(SHORT)}{suffix}"
    assert caplog.messages == [f"{lacking}: has no column 'note', which other tables have: it is null there"]


@pytest.mark.parametrize("text", [DEFINED, OPEN], ids=["defined", "open"])
def test_tables_in_memory_may_differ_too(text: str) -> None:
    for given in ([WHOLE, SHORT], [pd.DataFrame(WHOLE), pa.Table.from_pylist(SHORT)]):
        assert len(ensue.replay(text, given)) == 3


def test_a_column_that_no_table_has_is_a_mistake() -> None:
    with pytest.raises(ensue.InputError, match="has no column 'note', a field of 'A'"):
        ensue.replay(DEFINED, [SHORT, SHORT])


def test_tables_of_several_event_types_need_no_columns_of_one_another() -> None:
    text = """event A { string k; integer n; } event B { string k; integer m; integer o; }
    query Q { inputs { A() key k retain 2; B() key k retain 2; } find A as a -> B as b }"""
    tables = [[{"at": 1, "k": "x", "n": 1}], [{"at": 2, "k": "x", "m": 1, "o": 1}], [{"at": 3, "k": "x", "m": 1}]]
    assert len(ensue.replay(text, tables)) == 2

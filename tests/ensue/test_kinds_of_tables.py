"""The same rows as any kind of table, written by any library, give the same matches."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import ensue
from querylang.errors import InputError
from runtime.reading.tables import FORMATS

Rows = list[dict[str, Any]]

QUERIES = {
    "many payments": """inputs { Payment() key card within 10 minutes; }
        find every Payment as p select count() as n select sum(p.amount) as total having count() >= 3""",
    "failures, then a success": """inputs { Login() key user within 5 minutes; }
        find Login as a -> Login as b -> Login as c where not a.ok where not b.ok where c.ok""",
    "a silent host": """inputs { Beat() key host within 30 minutes; }
        find Beat as last -> wait(90 seconds) without Beat as next { print last.toString(); }""",
    "a stop": """inputs { Position() key bus within 1 hour; }
        find Position as moving -> Position as stop where moving.speed > 0.0 and stop.speed = 0.0 within 5 minutes""",
}
FIELDS: Mapping[str, Callable[[Random], dict[str, Any]]] = {
    "many payments": lambda rng: {"amount": rng.choice([5, 20.5, 7.25]), "card": f"{rng.randint(1, 4):03d}"},
    "failures, then a success": lambda rng: {"user": rng.choice("ab"), "ok": rng.random() < 0.4},
    "a silent host": lambda rng: {"n": rng.randint(1, 9), "host": rng.choice(["h1", "höst 2"])},
    "a stop": lambda rng: {"bus": rng.choice([7, 9]), "speed": rng.choice([0.0, 12.5, None])},
}


def drawn(name: str) -> Rows:
    """60 rows, some seconds apart."""
    rng, at = Random(name), datetime(2024, 3, 1, 8)  # noqa: DTZ001  as most tables have it
    rows = []
    for _ in range(60):
        at += timedelta(seconds=rng.randint(1, 90))
        rows.append({"at": at, **FIELDS[name](rng)})
    return rows


def with_views(table: pa.Table) -> pa.Table:
    """As Polars gives text."""
    kinds = [pa.string_view() if pa.types.is_string(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))


def written(rows: Rows, table: pa.Table, frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    """The rows in files, by library and format."""
    plain = [{name: str(value) if name == "at" else value for name, value in row.items()} for row in rows]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in plain))
    (folder / "a.json").write_text(json.dumps(plain))
    frame.to_csv(folder / "pandas.csv", index=False)
    frame.to_csv(folder / "quoted.tsv", index=False, sep="\t", quoting=1)
    frame.to_json(folder / "pandas.jsonl", orient="records", lines=True, date_format="iso")
    frame.to_parquet(folder / "pandas.parquet")
    pq.write_table(table, folder / "arrow.parquet")
    pa.feather.write_feather(table, str(folder / "a.feather"))
    connection = duckdb.connect()
    connection.register("rows", table)
    for form in ("csv", "json", "parquet"):
        connection.sql(f"COPY rows TO '{folder}/duckdb.{form}' (FORMAT {form})")
    return {path.name: path for path in sorted(folder.iterdir())} | {"relation": connection.sql("SELECT * FROM rows")}


@pytest.mark.parametrize("name", QUERIES)
def test_any_kind_of_table_gives_the_same_matches(name: str, tmp_path: Path) -> None:
    rows = drawn(name)
    table, frame = pa.Table.from_pylist(rows), pd.DataFrame(rows)
    tables = {
        "generator": iter(rows),
        "arrow": table,
        "views": with_views(table),
        "batches": table.to_reader(max_chunksize=17),
        "pandas": frame,
        "pandas of arrow": table.to_pandas(types_mapper=pd.ArrowDtype),
        "index of times": frame.set_index("at"),
    }
    expected = answer(QUERIES[name], rows)
    assert len(expected[0])
    for kind, given in {**tables, **written(rows, table, frame, tmp_path)}.items():
        found = answer(QUERIES[name], given)
        pd.testing.assert_frame_equal(found[0], expected[0], obj=kind)
        assert found[1] == expected[1]


def answer(query: str, table: Any) -> tuple[pd.DataFrame, list[str]]:
    """The matches, without what depends on the table's name, and the text of outputs."""
    result = ensue.replay(query, table)
    return result.matches.drop(columns="match_id"), result.outputs["text"].tolist()


@pytest.mark.parametrize("suffix", [*FORMATS, *(f"{kind}.gz" for kind in FORMATS)])
def test_a_file_that_cannot_be_read_is_named_whatever_its_kind(suffix: str, tmp_path: Path) -> None:
    query = "inputs { A() within 1 hour; } find A as a where a.s = 1"
    for name, refused in {"none": "no such file", "folder": "is a folder|folder without tables"}.items():
        path = tmp_path / f"{name}{suffix}"
        if name == "folder":
            path.mkdir()
        with pytest.raises(InputError, match=rf"{name}{re.escape(suffix)}: ({refused})"):
            ensue.replay(query, str(path))

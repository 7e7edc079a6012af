"""JSON in blocks: what a cell is does not depend on where a block ends, nor on the cells beside it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import querylang
from querylang.plan.expression import Type
from querylang.plan.model import Plan
from runtime.columns.arrivals import RecordKind
from runtime.file_forms import EVERYTHING
from runtime.reading.column_names import STANDARD
from runtime.reading.conversion import convert
from runtime.reading.formats import blocks, json_files
from runtime.reading.inference.schema import infer_schemas
from runtime.reading.tables import iter_table, read_raw

VALUES: Mapping[str, Callable[[random.Random], Any]] = {
    "integer": lambda rng: rng.randint(-5, 30),
    "float": lambda rng: rng.choice([20.5, 1.25, 3.0]),
    "text": lambda rng: rng.choice(["x", "20", "", "20.5"]),
    "boolean": lambda rng: rng.random() < 0.5,
    "null": lambda _: None,
    "list": lambda rng: [rng.choice([1, 2.5]) for _ in range(rng.randint(0, 3))],
    "object": lambda rng: {name: rng.choice([1, 2.5]) for name in rng.sample("pqz", rng.randint(1, 3))},
    "large": lambda rng: rng.choice([2**53 + 1, 2**63 - 1, 2**63, 10**30]),
}
QUERY = "query Q { inputs { T() retain 1; } find T as t }"
TYPES = ("float", "integer", "boolean", "optional<float>", "sequence<float>", "dictionary<string, float>")


def random_rows(rng: random.Random) -> list[dict[str, Any]]:
    """Rows whose field `v` has mostly one kind of value."""
    usual, *others = rng.sample(list(VALUES), rng.choice([2, 2, 3]))
    rows = []
    for number in range(rng.randint(5, 40)):
        kind = usual if rng.random() < 0.85 else rng.choice(others)
        rows.append({"at": number, "n": number} | ({"v": VALUES[kind](rng)} if rng.random() < 0.9 else {}))
    return rows


def read_rows(path: Path, plan: Plan) -> list[Any]:
    """The fields of each record; None for one that is malformed."""
    parts = [part.arrivals.table for part in iter_table(path, plan, STANDARD, "s")]
    table = pa.concat_tables([part.unify_dictionaries() for part in parts])
    names = [name for name in table.column_names if not name.startswith("_")]
    kinds, columns = table.column("_kind").to_pylist(), table.select(names).to_pylist()
    return [None if kind == RecordKind.MALFORMED else row for kind, row in zip(kinds, columns, strict=True)]


@pytest.mark.parametrize("seed", range(12))
def test_any_blocks_give_the_types_and_values_of_the_whole_list(tmp_path: Path, seed: int) -> None:
    rows = random_rows(random.Random(seed))
    whole, lines = tmp_path / "a.json", tmp_path / "a.jsonl"
    whole.write_text(json.dumps(rows))
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    schemas = infer_schemas(whole, event="T")
    texts = [f"event T {{ {type_} v; integer n; }} {QUERY}" for type_ in TYPES]
    plans = [
        querylang.compile_text(QUERY, schemas=schemas).plan,
        *(querylang.compile_text(text).plan for text in texts),
    ]
    expected = [read_rows(whole, plan) for plan in plans]
    for block, few, part in ((8 << 20, 40, 1 << 19), (100, 40, 1), (150, 1 << 15, 5)):
        with (
            patch.object(json_files, "_FIRST_BYTES", few),
            patch.object(blocks.Blocks.__init__, "__defaults__", (block,)),
            patch.multiple(json_files, _TOGETHER=1, _ROWS=part),
        ):
            assert infer_schemas(lines, event="T") == schemas
            assert [read_rows(lines, plan) for plan in plans] == expected


@pytest.mark.parametrize("type_", [Type.INTEGER, Type.FLOAT, Type.BOOLEAN, Type.DECIMAL])
def test_a_cell_of_text_is_the_same_value_beside_any_other(type_: Type) -> None:
    rng = random.Random(1)
    random_cells = ["".join(rng.choices("0127+-.eExnaNif _(d", k=rng.randint(1, 6))) for _ in range(1_500)]
    cells = ["0x10", "0xffffffffffffffff", "+1", "007", "nan(1)", "3.0", "-3.", "+-3", "TRUE", " 5 ", *random_cells]
    alone = [convert(pa.array([cell]), type_).values[0].as_py() for cell in cells]
    together = convert(pa.array([*cells, "not a value"]), type_).values.to_pylist()
    assert list(map(repr, together[:-1])) == list(map(repr, alone))


LINES = [
    *(
        "null",
        " null",
        "\ufeffnull",
        "null null",
        "{} {}",
        "{}null",
        '{"n": 1}{"n": 2}',
        "{} []",
        "1",
        '"x"',
        "true",
        "{",
        "}",
    ),
    *(
        '{"v": [null, 1]}',
        '{"v": {"w": [null, "x"]}}',
        '{"v": [1,\rnull]}',
        '{"v": [1]}',
        '{"v": {"w": 1}}',
        '{"v": NaN}',
    ),
    *('{"n": 1, "n": 2}', '{"v": "\\ud800"}', '{"v": "\\u0000"}', '{"v": 1e400}', '{"v": 1' + "0" * 5_000 + "}"),
    *('{"\\u0000": 1}', '{"": null}', "{}", "", " ", '{"v": ' + "[" * 200 + "]" * 200 + "}"),
]
"""What ends the process in Arrow's reader, what it takes for another row than it is, and the like."""

CHILD = """
import json, sys
from pathlib import Path
from runtime.reading.tables import read_raw
from runtime.reading.formats import json_files
json_files._FIRST_BYTES, json_files._BLOCK = 64, 256
for path in map(Path, sys.argv[1:]):
    raw = read_raw(path)
    bad = [[item.number, item.reason] for item in raw.unreadable]
    print(json.dumps([raw.columns.to_pylist(), raw.numbers.tolist(), bad]))
"""


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(part) for name, part in value.items() if without_nulls(part) not in (None, {})}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


def test_no_line_ends_the_process_or_is_another_row_beside_others(tmp_path: Path) -> None:
    """Wherever it stands; the process is a child, since Arrow's reader would end it."""
    usual = [json.dumps({"n": number}) for number in range(12)]
    texts = [
        "\n".join([*usual[:at], line, *usual[at:], ""])
        for line in LINES
        for at in (0, 1, 5, 12)  # the head of the first block, and of others
    ]
    paths = [tmp_path / f"{number}.jsonl" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    done = subprocess.run([sys.executable, "-c", CHILD, *map(str, paths)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1_000:]
    for text, told in zip(texts, done.stdout.splitlines(), strict=True):
        rows, numbers, bad = json.loads(told)
        lines = [json_files.row_of(line, EVERYTHING) for line in text.encode().split(b"\n") if line.strip()]
        assert [number for number, _ in bad] == [
            number for number, line in enumerate(lines, 1) if not isinstance(line, dict)
        ], text
        found = dict(zip(numbers, rows, strict=True))
        expected = {number: line for number, line in enumerate(lines, 1) if isinstance(line, dict)}
        assert without_nulls(_shown(found)) == without_nulls(_shown(expected)), text


def _shown(rows: Mapping[int, Mapping[str, Any]]) -> dict[int, Any]:
    """Rows to compare: where columns became text, their cells are texts."""
    return {number: {"n": str(row.get("n")), "v": "v" in row and row["v"] is not None} for number, row in rows.items()}


@pytest.mark.parametrize("name", [b"\\ud800", b"\xed\xa0\x80"])
def test_half_of_a_surrogate_pair_makes_its_own_row_malformed_only(tmp_path: Path, name: bytes) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"n": 1}\n{"%b": 2}\n{"n": 3}\n' % name)
    raw = read_raw(tmp_path / "a.jsonl")
    assert raw.numbers.tolist() == [1, 3]
    assert [item.number for item in raw.unreadable] == [2]


def test_fields_are_in_the_order_of_the_first_row(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"at": 1, "n": 1, "k": "x", "b": true}\n{"at": 2, "z": "y", "k": "x"}\n')
    assert list(infer_schemas(tmp_path / "a.jsonl", event="A")["A"]) == ["n", "k", "b", "z"]


def test_whole_numbers_may_have_a_sign_or_a_point_with_zeros() -> None:
    cells = pa.array(["+5", "5.0", "-5.", "0x1F", "007", " 7 ", "5.5", "+-5", "1_000", "1e3"])
    assert convert(cells, Type.INTEGER).values.to_pylist() == [5, 5, -5, 31, 7, 7, None, None, None, None]


def test_booleans_are_not_numbers_and_only_two_numbers_are_booleans() -> None:
    assert convert(pa.array([True, False]), Type.FLOAT).values.to_pylist() == [None, None]
    assert convert(pa.array([0, 1, 5]), Type.BOOLEAN).values.to_pylist() == [False, True, None]

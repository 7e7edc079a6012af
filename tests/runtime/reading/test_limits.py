"""No file, record or text stops the process: limits, depth, and work in proportion to size."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from querylang import compile_text
from querylang.errors import InputError
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.reading.column_names import ColumnNames
from runtime.reading.inference.schema import infer_schemas
from runtime.reading.tables import iter_arrivals, read_arrivals
from tests.support.linear import MOST, growth

PLAN = compile_text("event A { float v; string s; }\ninputs { A() within 30.0; } find A as a1 -> A as a2").plan
SHORT = ColumnNames(max_record=1_000)
LINE = '{"at":1,"v":1,"s":"x"}\n'
HEADER = "at,v,s\n"


def written(folder: Path, name: str, content: str | bytes) -> Path:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def reasons(arrivals: Arrivals) -> list[str | None]:
    """By record: None for an event, else what is wrong, without the record."""
    kinds = arrivals.system("kind").tolist()
    texts = arrivals.table.column("_text").to_pylist()
    return [text if kind == RecordKind.MALFORMED else None for kind, text in zip(kinds, texts, strict=True)]


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, '{"v":' + "[" * 5_000 + "]" * 5_000 + "}"])
def test_a_line_of_json_that_is_nested_too_deeply_is_malformed(content: str, tmp_path: Path) -> None:
    file = written(tmp_path, "e.jsonl", LINE + content + "\n" + LINE)
    before, deep, behind = reasons(read_arrivals(file, PLAN))
    assert (before, behind) == (None, None)
    assert (deep or "").startswith("line 2: not JSON: nested more than 100 deep: ")


def test_an_element_of_a_json_list_that_is_nested_too_deeply_is_malformed(tmp_path: Path) -> None:
    deep = '{"v":' + "[" * 100_000 + "]" * 100_000 + "}"
    file = written(tmp_path, "e.json", f'[{LINE},{deep},{{"s":"[[[[", "at":2}}]')
    found = reasons(read_arrivals(file, PLAN))
    assert [text and text[:34] for text in found] == [None, "row 2: nested more than 100 deep: ", None]


def test_brackets_in_strings_are_not_nested(tmp_path: Path) -> None:
    text = "[" * 500 + '\\"' + "{" * 500
    file = written(tmp_path, "e.jsonl", LINE + f'{{"at":1,"v":1,"s":"{text}"}}\n')
    assert reasons(read_arrivals(file, PLAN)) == [None, None]


def test_values_in_memory_that_are_nested_too_deeply_are_one_clear_line() -> None:
    value: object = 1
    for _ in range(20_000):
        value = [value]
    with pytest.raises(InputError, match="table: column 'v' has a value nested more than 100 deep"):
        read_arrivals([{"at": 1, "v": value, "s": ""}], PLAN)
    with pytest.raises(InputError, match="table: column 'v' has a value nested more than 100 deep"):
        read_arrivals(pd.DataFrame({"at": [1], "v": [value], "s": [""]}), PLAN)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (f'3,1,"{"x" * 2_000}"\n', ["line 3: longer than 1000 bytes"]),
        (f"3,1,{'x' * 2_000}\n", ["line 3: longer than 1000 bytes"]),
        ('3,1,"' + "x\n" * 1_000 + '"\n', ["line 3: longer than 1000 bytes"]),
        (f'3,1,a"{"x" * 2_000}\n', ["line 3: longer than 1000 bytes"]),
        ('3,1,a"b\n', ["line 3: a quote occurs inside a cell"]),
        ('3,1,"open\n3,1,a"b\n', ["line 3: a quote is not closed, or occurs inside a cell", "line 4: a quote occurs inside a cell"]),
        ('3,1,"two\nlines"\n', [None]),
        ('3,1,"two\nlines",x\n', ["line 3: a quote is not closed, or occurs inside a cell", "line 4: "]),
        ("3,1\n", ["line 3: 2 cells where the header has 3"]),
        ("3,1\r,x\n", ["line 3: a line end inside of a cell without quotes"]),
    ],
)  # fmt: skip
def test_a_record_of_csv_that_is_not_a_row_spoils_no_other(
    content: str, expected: list[str | None], tmp_path: Path
) -> None:
    file = written(tmp_path, "e.csv", HEADER + "1,1,x\n" + content + '2,2,"y"\n')
    found = reasons(read_arrivals(file, PLAN, SHORT))
    assert len(found) == len(expected) + 2
    assert [found[0], found[-1]] == [None, None]
    assert [text and text.startswith(want or "-") for text, want in zip(found[1:-1], expected, strict=True)] == [
        want and True for want in expected
    ]


def test_a_line_of_json_over_the_limit_is_malformed(tmp_path: Path) -> None:
    file = written(tmp_path, "e.jsonl", LINE + f'{{"s":"{"x" * 2_000}"}}\n' + LINE)
    found = reasons(read_arrivals(file, PLAN, SHORT))
    assert [found[0], found[2]] == [None, None]
    assert (found[1] or "").startswith("line 2: longer than 1000 bytes, the limit `max_record`")


def test_a_row_of_parquet_over_the_limit_is_malformed(tmp_path: Path) -> None:
    table = pa.table({"at": [1, 2, 3], "v": [1.0, 2.0, 3.0], "s": ["x", "x" * 2_000, "y"]})
    pa.parquet.write_table(table, tmp_path / "e.parquet")
    found = reasons(read_arrivals(tmp_path / "e.parquet", PLAN, SHORT))
    assert found == [None, "row 2: longer than 1000 bytes, the limit `max_record`: 2,000 bytes", None]


def test_a_long_record_costs_bounded_memory(tmp_path: Path) -> None:
    file = tmp_path / "e.csv"
    with file.open("w") as out:
        out.write(HEADER + '1,1,"')
        for _ in range(100):
            out.write("x" * 1_000_000)
        out.write('"\n2,2,y\n')
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert [bool(text) for text in reasons(read_arrivals(file, PLAN))] == [True, False]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000


@pytest.mark.parametrize(("blocks", "size"), [(1, 10), (2, 10), (7, 1)])
def test_a_csv_file_in_blocks_is_the_file_as_a_whole(
    blocks: int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = HEADER + '1,1,"a\n""b"\n\n2,2\n3,3,x"\n4,4,y\n"5","5","\n\n"\n6,6,"open\n7,7,z'
    file = written(tmp_path, "e.csv", text)
    whole = read_arrivals(file, PLAN)
    monkeypatch.setattr("runtime.reading.formats.blocks.Blocks.__init__.__defaults__", (size * blocks,))
    parts = list(iter_arrivals(file, PLAN))
    assert len(parts) > 1
    assert Arrivals.concat(parts).table.to_pylist() == whole.table.to_pylist()


def test_json_lines_in_blocks_are_the_file_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "e.jsonl", LINE + '{"at":2,"v":7,"s":"y"}\n\n{broken\n{"at":3,"v":2.5}\n{"at":4,"S":1}')
    whole = read_arrivals(file, PLAN)
    monkeypatch.setattr("runtime.reading.formats.blocks.Blocks.__init__.__defaults__", (30,))
    for name in ("_TOGETHER", "_ROWS"):
        monkeypatch.setattr(f"runtime.reading.formats.json_files.{name}", 1)
    parts = list(iter_arrivals(file, PLAN))
    assert len(parts) > 1
    assert Arrivals.concat(parts).table.to_pylist() == whole.table.to_pylist()


def test_a_small_parquet_file_that_unfolds_to_much_text_is_refused(tmp_path: Path) -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000, pa.int32()), ["x" * 1_000_000])
    table = pa.table({"at": range(1_000), "v": [1.0] * 1_000, "s": text})
    pa.parquet.write_table(table, tmp_path / "e.parquet", compression="zstd")
    with pytest.raises(InputError, match=r"e\.parquet: unfolds to more than 256 MB, .*larger `max_record` than 16 MB"):
        read_arrivals(tmp_path / "e.parquet", PLAN)


def test_a_small_parquet_file_that_unfolds_to_many_rows_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "e.parquet"
    part = pa.table({"at": pa.repeat(1, 2_000_000), "v": pa.repeat(1.0, 2_000_000), "s": pa.repeat("x", 2_000_000)})
    with pa.parquet.ParquetWriter(file, part.schema, compression="zstd") as writer:
        for _ in range(10):
            writer.write_table(part)
    with pytest.raises(InputError, match=r"e\.parquet: unfolds to more than 256 MB"):
        read_arrivals(file, PLAN)


def test_what_is_not_a_file_is_refused_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.csv")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "device.csv").symlink_to("/dev/zero")
    for name, told in (
        ("fifo", "is a device or a pipe"),
        ("folder", "is a folder"),
        ("device", "is a device or a pipe"),
    ):
        with pytest.raises(InputError, match=rf"{name}\.csv: {told}"):
            read_arrivals(tmp_path / f"{name}.csv", PLAN)


@pytest.mark.parametrize("name", ["a" * 300 + ".csv", "a\0b.csv"])
def test_a_name_that_no_file_can_have_is_one_clear_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be a file"):
        read_arrivals(tmp_path / name, PLAN)


def test_a_new_name_in_each_line_of_json_is_read_where_fields_are_defined(tmp_path: Path) -> None:
    lines = "".join(f'{{"at":1,"v":1,"s":"x","k{number}":1}}\n' for number in range(3_000))
    file = written(tmp_path, "e.jsonl", lines)
    assert reasons(read_arrivals(file, PLAN)) == [None] * 3_000
    with pytest.raises(InputError, match="its 3,000 rows have 3,003 different names"):
        infer_schemas(file, event="A")


@pytest.mark.parametrize("what", ["digits", "columns", "names", "nested names", "stray quotes", "open quotes"])
def test_twice_the_input_takes_twice_the_time(what: str, tmp_path: Path) -> None:
    file = tmp_path / ("e.jsonl" if "names" in what else "e.csv")

    def content(size: int) -> str:
        numbers = range(size)
        match what:
            case "digits":
                return HEADER + 50 * ("1" * size + "x,1,\n")
            case "columns":
                return ",".join(["at", "v", "s", *(f"c{n}" for n in numbers)]) + "\n1,1,x" + "," * size + "\n"
            case "names":
                return LINE + "".join(f'{{"k{n}":1}}\n' for n in numbers)
            case "nested names":
                return LINE + "".join(f'{{"v":{{"k{n}":1}}}}\n' for n in numbers)
            case "stray quotes":
                return HEADER + "".join(f'{n},1,a"b\n' for n in numbers)
            case _:
                return HEADER + "".join(f'{n},"a\n",x,y\n' for n in numbers)

    def read(size: int) -> None:
        file.write_text(content(size))
        read_arrivals(file, PLAN)

    assert growth(read, 5_000) < MOST


HALF = "\ud800"


@pytest.mark.parametrize("as_table", [list, pd.DataFrame])
@pytest.mark.parametrize("value", [Decimal("Infinity"), Decimal("sNaN"), [Decimal("Infinity")], [HALF]])
@pytest.mark.parametrize("others", [[], [{"at": 1, "d": Decimal(1)}]])
def test_values_in_memory_that_no_field_can_hold_are_malformed(
    value: object, others: list[dict[str, object]], as_table: Callable[[object], object]
) -> None:
    plan = compile_text("event A { decimal d; }\ninputs { A() within 30.0; } find A as a1 -> A as a2").plan
    *before, last = reasons(read_arrivals(as_table([*others, {"at": 1, "d": value}]), plan))
    assert before == [None] * len(others)
    assert "is not a value of 'd' (decimal)" in (last or "")


@pytest.mark.parametrize("cell", ['{"t":"\\ud800"}', {"t": HALF}, '{"t":' + "[" * 100_000])
def test_an_event_in_a_cell_that_no_field_can_hold_is_malformed(cell: object) -> None:
    text = "event B { string t; }\nevent A { B b; }\ninputs { A() within 30.0; } find A as a1 -> A as a2"
    good, bad = reasons(read_arrivals([{"at": 1, "b": '{"t":"x"}'}, {"at": 1, "b": cell}], compile_text(text).plan))
    assert good is None
    assert "is not a value of 'b' (B)" in (bad or "")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"at": [1], HALF: [1]}, "table: the name of a column has half of a surrogate pair, which is not text"),
        ({"at": [1], "v": [1j], "s": ["x"]}, "table: column 'v' is complex128, but field 'v' of 'A' is "),
    ],
)
def test_a_column_of_pandas_that_cannot_be_read_is_one_clear_line(columns: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        read_arrivals(pd.DataFrame(columns), PLAN)


def test_event_types_in_lists_are_unknown() -> None:
    arrivals = read_arrivals([{"at": 1, "event": ["A"], "v": 1, "s": "x"}], PLAN)
    assert arrivals.system("kind").tolist() == [RecordKind.UNKNOWN_TYPE]


def test_the_name_of_a_file_may_be_any_bytes(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.csv")).write_text(HEADER + "1,1,x\n")
    (file,) = tmp_path.iterdir()
    assert read_arrivals(file, PLAN).table.column("_source").to_pylist() == ["\\xff.csv"]

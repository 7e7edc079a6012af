"""CSV as others write it: missing values, no names, lines before the table, escaped quotes, thousands."""

from __future__ import annotations

import bz2
import gzip
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import querylang
from querylang.errors import InputError
from querylang.plan.expression import Type
from runtime.columns.arrivals import RecordKind
from runtime.file_forms import CsvForm, read_csv_form
from runtime.reading.column_names import ColumnNames
from runtime.reading.inference.schema import infer, infer_schemas
from runtime.reading.tables import iter_arrivals, read_arrivals

PLAN = querylang.compile_text(
    "event A { string k; optional<float> v; optional<integer> n; } query Q { inputs { A() retain 1; } find A as a }"
).plan


def cells(path: Path, form: Any) -> list[tuple[object, ...]]:
    table = read_arrivals(path, PLAN, ColumnNames(csv=read_csv_form(form))).table
    return list(zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True))


COLUMNS = ("k:string", "v:optional<float>", "n:optional<integer>", "_text")


def written(folder: Path, text: str | bytes, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("form", ["missing=NA,nil", {"missing": ["NA", "nil"]}, {"missing": "NA,nil"}])
def test_words_for_missing_values(tmp_path: Path, form: Any) -> None:
    path = written(tmp_path, 'at,k,v,n\n1,a,NA,nil\n2,"NA","NA",3\n3,NA,1.5,"nil"\n')
    assert cells(path, form) == [("a", None, None, None), ("NA", None, 3, None), (None, 1.5, None, None)]


TIMED = querylang.compile_text("event A { string k; } query Q { inputs { A() retain 1 wait 5.0; } find A as a }").plan


@pytest.mark.parametrize("cell", ["", '""', "NA", '"NA"', '" NA "'])
@pytest.mark.parametrize(
    ("columns", "row", "kind", "reason"),
    [
        ("at,ts,k", "1,{},a", 0, None),
        ("at,ts,partition,k", "1,1,{},a", 0, None),
        ("at,ts,offset,k", "1,1,{},a", 0, None),
        ("at,ts,k", "{},1,a", RecordKind.MALFORMED, "line 2: 'at' is empty"),
    ],
)
def test_a_cell_without_a_value_is_the_same_in_quotes(
    tmp_path: Path, columns: str, row: str, kind: int, reason: str | None, cell: str
) -> None:
    path = written(tmp_path, f"{columns}\n{row.format(cell)}\n")
    table = read_arrivals(path, TIMED, ColumnNames(csv=read_csv_form("missing=NA"))).table
    assert table.column("_kind").to_pylist() == [kind]
    assert (table.column("_partition")[0].as_py(), table.column("_offset")[0].as_py()) == (0, 1)
    text = table.column("_text")[0].as_py()
    assert (text if text is None else text.rpartition(": ")[0]) == reason


def test_a_word_that_is_not_expected_names_the_setting(tmp_path: Path) -> None:
    path = written(tmp_path, "at,k,v,n\n1,a,NA,1\n2,b,2,2\n3,c,3,3\n")
    assert cells(path, None)[0][3] == (
        "line 2: 'NA' is not a value of 'v' (optional<float>);"
        " if it means that there is no value: `--csv missing=NA`: 1,a,NA,1"
    )
    assert infer(path, event="A").remarks == (
        'a.csv: v is text: line 2 has "NA"; if it means that there is no value: `--csv missing=NA`',
    )
    names = ColumnNames(csv=read_csv_form("missing=NA"))
    assert infer_schemas(path, names=names, event="A")["A"]["v"] == Type.INTEGER


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("header=no names=at,k,v,n", "1,a,1.5,2\n"),
        ("names=at,k,v,n", "1,a,1.5,2\n"),
        ({"header": False, "names": ["at", "k", "v", "n"]}, "1,a,1.5,2\n"),
        ("header=yes names=at,k,v,n", "time,name,value,number\n1,a,1.5,2\n"),
        ("skip=2", "a report\nof, today\nat,k,v,n\n1,a,1.5,2\n"),
        ("skip=1 names=at,k,v,n", 'only one " quote\n1,a,1.5,2\n'),
        ("skip=1 names=at,k,v,n", "one\r\n1,a,1.5,2\r\n"),
    ],
)
def test_names_and_lines_before_the_table(tmp_path: Path, form: Any, text: str) -> None:
    assert cells(written(tmp_path, text), form) == [("a", 1.5, 2, None)]


def test_lines_keep_their_numbers_behind_those_that_are_skipped(tmp_path: Path) -> None:
    path = written(tmp_path, "one\ntwo\nat,k,v,n\n1,a,x,2\n")
    assert cells(path, "skip=2")[0][3] == "line 4: 'x' is not a value of 'v' (optional<float>): 1,a,x,2"


def test_names_are_generated_without_a_header(tmp_path: Path) -> None:
    path = written(tmp_path, "1,a,1.5\n2,b,2.5\n")
    names = ColumnNames(arrival="column1", csv=read_csv_form("header=no"))
    found = infer_schemas(path, names=names, event="A")
    assert found == {"A": {"column2": Type.STRING, "column3": Type.FLOAT}}
    with pytest.raises(InputError, match="has 3 columns, and `names` has 2"):
        cells(path, "names=at,k")


def test_quotes_may_be_escaped(tmp_path: Path) -> None:
    path = written(tmp_path, r"at,k,v,n" "\n" r'1,"a \"b\", c",1,1' "\n" r'2,"C:\temp\\",2,2' "\n" r"3,x\y,3,3" "\n")
    texts = [row[0] for row in cells(path, r"escape=\\".replace("\\\\", "\\"))]
    assert texts == ['a "b", c', "C:\\temp\\", "x\\y"]


@pytest.mark.parametrize("compression", ["", ".gz"])
def test_escaped_quotes_are_read_alike_wherever_a_file_is_cut(tmp_path: Path, compression: str) -> None:
    random = Random(3)
    texts = ["".join(random.choices('ab,"\\\n', k=random.randrange(9))) for _ in range(100_000)]
    lines = (
        f'{number},"{text.replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}",1,1\n'
        for number, text in enumerate(texts)
    )
    data = ("at,k,v,n\n" + "".join(lines)).encode()
    path = written(tmp_path, gzip.compress(data) if compression else data, f"a.csv{compression}")
    form = ColumnNames(csv=CsvForm(escape="\\"))
    parts = [part.table for part in iter_arrivals(path, PLAN, form)]
    assert pa.concat_tables(parts).column("k:string").to_pylist() == texts


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("thousands=,", '1,a,"1,234,567.5","1,000"', (1_234_567.5, 1_000)),
        ("thousands=,", '1,a,"-1,00,000","+12"', (-100_000.0, 12)),
        ("thousands=. decimal=, delimiter=;", "1;a;1.234,5;1.000", (1_234.5, 1_000)),
        ("thousands=space", "1,a,1 234.5,1 000", (1_234.5, 1_000)),
        ("thousands='", "1,a,1'234.5,1'000", (1_234.5, 1_000)),
    ],
)
def test_digits_may_be_divided(tmp_path: Path, form: str, text: str, expected: tuple[float, int]) -> None:
    head = "at;k;v;n" if ";" in form else "at,k,v,n"
    assert cells(written(tmp_path, f"{head}\n{text}\n"), form) == [("a", *expected, None)]


@pytest.mark.parametrize("cell", ["12,34", "1,2345", "1,,000", ",100"])
def test_digits_are_divided_by_three(tmp_path: Path, cell: str) -> None:
    (row,) = cells(written(tmp_path, f'at,k,v,n\n1,a,"{cell}",1\n'), "thousands=,")
    assert "is not a value of 'v'" in str(row[3])


@pytest.mark.parametrize(
    ("cell", "hint"),
    [
        ("1,000", "; if commas divide thousands: `--csv thousands=,`"),
        ("-1,234,567.25", "; if commas divide thousands: `--csv thousands=,`"),
        ("20,5", "; with commas in decimals: `--csv decimal=,`"),
        ("x", ""),
    ],
)
def test_a_number_with_commas_names_the_setting_that_reads_it(tmp_path: Path, cell: str, hint: str) -> None:
    path = written(tmp_path, f'at,k,v,n\n1,a,"{cell}",1\n')
    assert f"'{cell}' is not a value of 'v' (optional<float>){hint}: 1" in str(cells(path, None)[0][3])
    remarks = infer(path, event="A").remarks
    assert remarks == ((f'a.csv: v is text: line 2 has "{cell}"{hint}',) if hint else ())


@pytest.mark.parametrize(
    ("cell", "hint"),
    [
        ("1.234,5", "; if points divide thousands: `--csv thousands=.`"),
        ("1.234", "; if points divide thousands: `--csv thousands=.`"),
        ("1.5", "; with points in decimals: `--csv decimal=.`"),
        ("x", ""),
    ],
)
def test_with_a_decimal_comma_the_hint_is_about_points(tmp_path: Path, cell: str, hint: str) -> None:
    path = written(tmp_path, f"at;k;v;n\n1;a;{cell};1\n")
    form = "delimiter=; decimal=,"
    assert f"'{cell}' is not a value of 'v' (optional<float>){hint}: 1" in str(cells(path, form)[0][3])
    remarks = infer(path, names=ColumnNames(csv=read_csv_form(form)), event="A").remarks
    assert remarks == ((f'a.csv: v is text: line 2 has "{cell}"{hint}',) if hint else ())


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("thousands=x", "thousands 'x' divides no numbers"),
        ("thousands=.", "'.' cannot divide thousands and begin the fraction"),
        ("header=maybe", "header 'maybe' is neither `yes` nor `no`"),
        ("skip=-1", "skip '-1' is not a number of lines"),
        ("escape=ab", "escape 'ab' is not a character before quotes"),
        ("names=a,a", "the name 'a' is given twice"),
        ({"missing": 3}, "missing 3 is not a list of texts"),
    ],
)
def test_what_is_no_form_is_told(form: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_csv_form(form)


@pytest.mark.parametrize(
    "text",
    [
        r'thousands=space missing=NA,nil header=no names="a b,c" skip=2 escape=' + "\\",
        "delimiter=; decimal=, thousands=.",
    ],
)
def test_a_form_is_shown_as_it_is_given(text: str) -> None:
    form = read_csv_form(text)
    assert read_csv_form(str(form)) == form
    assert CsvForm.of_plain(form.to_plain()) == form


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", "at,k\n1,a\n")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".json", ".jsonl"])
@pytest.mark.parametrize(
    ("write", "told"),
    [
        (zipped, "it is a zip archive, as Excel's files are"),
        (lambda path: path.write_bytes(gzip.compress(b"at,k\n")), "it is compressed by gzip; rename it to end in"),
        (lambda path: path.write_bytes(bz2.compress(b"at,k\n")), "it is compressed by bzip2; rename it to end in"),
        (lambda path: pyarrow.parquet.write_table(pa.table({"at": [1]}), path), "it is a Parquet file; rename it"),
        (lambda path: pyarrow.feather.write_feather(pa.table({"at": [1]}), path), "it is an Arrow file; rename it"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, suffix: str, write: Any, told: str) -> None:
    path = tmp_path / f"a{suffix}"
    write(path)
    with pytest.raises(InputError) as raised:
        read_arrivals(path, PLAN)
    assert str(raised.value).startswith(f"{path}: its name ends in {suffix}, but {told}")
    packed = written(tmp_path, gzip.compress(path.read_bytes()), f"b{suffix}.gz")
    with pytest.raises(InputError, match=f"b{suffix}.gz: its name ends in {suffix}, but it is"):
        read_arrivals(packed, PLAN)


@pytest.mark.parametrize("name", ["ORC", "BZh", "PAR1", "ARROW1"])
def test_a_column_may_be_called_as_a_binary_file_begins(tmp_path: Path, name: str) -> None:
    assert cells(written(tmp_path, f"{name},at,k,v,n\n0,1,a,1,1\n"), None) == [("a", 1.0, 1, None)]

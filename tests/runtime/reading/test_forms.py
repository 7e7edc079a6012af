"""Files as people have them: compressed, delimited, encoded, with times in other units and forms."""

from __future__ import annotations

import bz2
import contextlib
import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pytest

import querylang
from querylang.errors import InputError
from querylang.plan.expression import Type
from runtime.columns.arrivals import RecordKind
from runtime.file_forms import CsvForm, read_csv_form
from runtime.policies.settings_text import TimeForm, patterns_of, read_time_form
from runtime.reading.column_names import STANDARD, ColumnNames
from runtime.reading.inference.schema import infer_schemas
from runtime.reading.tables import iter_arrivals, read_arrivals

PLAN = querylang.compile_text(
    "event A { string k; float v; } query Q { inputs { A() key k within 1 hour; } find A:a { print a.k; } }"
).plan
ROWS = "at,k,v\n10:00:00,a,1.5\n10:00:01,Ü,2\n"
SECOND = 1_000_000


def zstd(data: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as packed:
        packed.write(data)
    return bytes(out.getvalue())


def written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def cells(path: Path, names: ColumnNames = STANDARD) -> list[tuple[object, ...]]:
    table = read_arrivals(path, PLAN, names).table
    columns = [table.column(name).to_pylist() for name in ("_arrival", "k:string", "v:float")]
    return list(zip(*columns, strict=True))


EXPECTED = [(36_000 * SECOND, "a", 1.5), (36_001 * SECOND, "Ü", 2.0)]


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".zst", zstd)])
def test_a_packed_file_is_read_as_the_plain_one(tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(ROWS.encode())
    assert cells(written(tmp_path, f"a.csv{ending}", packed)) == EXPECTED
    assert cells(written(tmp_path, f"a.TSV{ending.upper()}", pack(ROWS.replace(",", "\t").encode()))) == EXPECTED
    with pytest.raises(InputError, match=rf"^{tmp_path}/cut.csv{ending}: cannot be unfolded: "):
        cells(written(tmp_path, f"cut.csv{ending}", packed[:-4]))
    with pytest.raises(InputError, match="cannot be unfolded"):
        cells(written(tmp_path, f"not.csv{ending}", ROWS.encode()))
    with pytest.raises(InputError, match="cannot be unfolded"):
        cells(written(tmp_path, f"more.csv{ending}", packed + b"more"))


def test_a_file_that_unfolds_without_end_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    bomb = written(tmp_path, "bomb.csv.gz", gzip.compress(b"at,k,v\n" + b"1,a,1\n" * 1_000_000))
    with pytest.raises(InputError, match=r"bomb.csv.gz: unfolds to more than .*set a larger `max_record` than 1 kB"):
        cells(bomb, ColumnNames(max_record=1024))
    assert len(cells(bomb)) == 1_000_000


def test_mistakes_inside_of_a_packed_file_name_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "twice.csv.gz", gzip.compress(b"at,k,k\n"))
    with pytest.raises(InputError, match=rf"^{path}: duplicate column 'k'"):
        cells(path)


@pytest.mark.parametrize(
    ("form", "name", "data"),
    [
        ("delimiter=; encoding=latin-1", "a.csv", ROWS.replace(",", ";").encode("latin-1")),
        ("encoding=utf-16", "a.csv", ROWS.encode("utf-16")),
        ("encoding=cp1252 delimiter=|", "a.csv", ROWS.replace(",", "|").encode("cp1252")),
        ("delimiter=tab", "a.csv", ROWS.replace(",", "\t").encode()),
        ("delimiter=\\t", "a.csv", ROWS.replace(",", "\t").encode()),
        ("delimiter=,", "a.tsv", ROWS.encode()),
        ("", "a.tsv", ROWS.replace(",", "\t").encode()),
    ],
)
def test_delimiter_and_encoding_are_as_given(tmp_path: Path, form: str, name: str, data: bytes) -> None:
    assert cells(written(tmp_path, name, data), ColumnNames(csv=read_csv_form(form))) == EXPECTED


def test_stray_quotes_and_cells_are_found_with_other_delimiters(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", b'at;k;v\n1;"a;b";1\n2;x"y;2\n3;a\n4;"c""d";3\n')
    table = read_arrivals(path, PLAN, ColumnNames(csv=CsvForm(";"))).table
    assert table.column("k:string").to_pylist() == ["a;b", None, None, 'c"d']
    texts = [text.split(":")[0] for text in table.column("_text").to_pylist() if text]
    assert texts == ["line 3", "line 4"]


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16-le", "utf-8-sig"])
def test_what_is_not_text_in_the_encoding_is_malformed(tmp_path: Path, encoding: str) -> None:
    broken = "\ud800".encode("utf-16-le", "surrogatepass") if encoding == "utf-16-le" else b"\x81"
    data = ROWS.replace("Ü", "@").encode(encoding).replace("@".encode(encoding.removesuffix("-sig")), broken)
    table = read_arrivals(written(tmp_path, "a.csv", data), PLAN, ColumnNames(csv=CsvForm(None, encoding))).table
    assert table.column("_kind").to_pylist() == [0, RecordKind.MALFORMED]
    (text,) = filter(None, table.column("_text").to_pylist())
    named = "UTF-8 text; if it is cp1252: `--csv encoding=cp1252`" if encoding == "utf-8" else f"{encoding} text"
    assert f" in 'k' is not {named}: " in text
    assert "xed" not in text


def test_utf_16_without_an_order_of_bytes_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.csv: is not utf-16 text: .*BOM"):
        cells(written(tmp_path, "a.csv", ROWS.encode("utf-16-be")), ColumnNames(csv=CsvForm(None, "utf-16")))


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("delimiter=ab", "delimiter 'ab' is not one ASCII character"),
        ("delimiter=ä", "delimiter 'ä' is not one ASCII character"),
        ('delimiter="', "is not one ASCII character"),
        ("encoding=latin-99", "there is no encoding 'latin-99'; did you mean 'latin-1'"),
        ("encoding=rot13", "there is no encoding 'rot13'"),
        ("encoding=idna", "there is no encoding 'idna'"),
        ("delimter=;", "unknown setting 'delimter'.*did you mean 'delimiter'"),
        ("delimiter=; delimiter=,", "'delimiter' is given twice"),
        (";", "';' is not a setting"),
    ],
)
def test_a_wrong_form_of_csv_is_told(form: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_csv_form(form)


def test_other_delimiters_and_utf_16_are_suggested(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"its only column is 'at;k;v'.*--csv \"delimiter=;\""):
        cells(written(tmp_path, "a.csv", ROWS.replace(",", ";").encode()))
    with pytest.raises(InputError, match=r"is UTF-16 text.*--csv encoding=utf-16"):
        cells(written(tmp_path, "b.csv", ROWS.encode("utf-16")))


@pytest.mark.parametrize("suffix", ["arrow", "feather", "arrow.gz"])
def test_arrow_files_and_streams(tmp_path: Path, suffix: str) -> None:
    table = pa.table({"at": [1, 2], "k": ["a", "Ü"], "v": [1.5, 2.0]})
    path = tmp_path / f"a.{suffix}"
    if suffix == "feather":
        pyarrow.feather.write_feather(table, path)
    else:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, table.schema) as stream:
            stream.write_table(table)
        path.write_bytes(gzip.compress(out.getvalue()) if suffix.endswith("gz") else out.getvalue())
    assert cells(path) == [(SECOND, "a", 1.5), (2 * SECOND, "Ü", 2.0)]


def test_damaged_arrow_files_are_told_and_broken_text_is_malformed(tmp_path: Path) -> None:
    texts = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers())
    table = pa.table({"at": [1, 2], "k": texts, "v": [1.5, 2.0]})
    path = tmp_path / "a.arrow"
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    assert read_arrivals(path, PLAN).table.column("_kind").to_pylist() == [0, RecordKind.MALFORMED]
    data = path.read_bytes()
    for place in range(0, len(data), 3):
        damaged = written(tmp_path, "b.arrow", data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :])
        with contextlib.suppress(InputError):
            list(iter_arrivals(damaged, PLAN))
    with pytest.raises(InputError, match=r"a.feather: is a Feather file of version 1"):
        cells(written(tmp_path, "a.feather", b"FEA1xxxx"))


@pytest.mark.parametrize(
    ("form", "cell", "micros"),
    [
        (("ms", None), "1700000000123", 1_700_000_000_123_000),
        (("ms", None), "1700000000123.4", 1_700_000_000_123_400),
        (("us", None), "1700000000123456", 1_700_000_000_123_456),
        (("ns", None), "1700000000123456789", 1_700_000_000_123_456),
        (("ms", None), "2023-11-14T22:13:20Z", 1_700_000_000_000_000),
        ((None, "%d.%m.%Y %H:%M:%S"), "14.11.2023 22:13:20", 1_700_000_000_000_000),
        ((None, "%d.%m.%Y %H:%M:%S.%f"), "14.11.2023 22:13:20.5", 1_700_000_000_500_000),
        ((None, "%d.%m.%Y %H:%M %z"), "14.11.2023 23:13 +0100", 1_699_999_980_000_000),
        ((None, "%I:%M %p"), "10:00 PM", 79_200 * SECOND),
        ((None, "%Y%m%d"), "90000101", 221_845_392_000 * SECOND),
    ],
)
def test_times_in_other_units_and_forms(form: tuple[str | None, str | None], cell: str, micros: int) -> None:
    rows = [{"at": cell, "k": "a", "v": 1.0}, {"at": None, "k": "b", "v": 1.0}]
    arrivals = read_arrivals(rows, PLAN, ColumnNames(times=read_time_form(*form)))
    assert arrivals.system("arrival")[0] == micros
    if form[0] and cell.isdigit():
        table = pa.table({"at": [int(cell)], "k": ["a"], "v": [1.0]})
        assert read_arrivals(table, PLAN, ColumnNames(times=TimeForm(form[0]))).system("arrival")[0] == micros


@pytest.mark.parametrize("cell", ["now", "today", "2023-11-14", "31.02.2023 10:00:00", "14.11.2023 22:13:20 "])
def test_text_in_another_form_is_malformed(cell: str) -> None:
    names = ColumnNames(times=read_time_form(None, "%d.%m.%Y %H:%M:%S"))
    table = read_arrivals([{"at": cell, "k": "a", "v": 1.0}], PLAN, names).table
    is_time = cell.startswith("14.")  # white space around it is ignored
    assert table.column("_kind").to_pylist() == [0 if is_time else RecordKind.MALFORMED]
    assert is_time or "is not a time of the form '%d.%m.%Y %H:%M:%S'" in table.column("_text")[0].as_py()


@pytest.mark.parametrize(
    ("unit", "pattern", "message"),
    [
        ("h", None, "unknown unit 'h'; expected s, ms, us or ns"),
        (None, "%Q", "'%Q' is not a form of times"),
        (None, "soon", "'soon' has neither a date nor a time"),
    ],
)
def test_a_wrong_form_of_times_is_told(unit: str | None, pattern: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_time_form(unit, pattern)


@pytest.mark.parametrize(
    ("texts", "patterns"),
    [
        (["14.11.2023 22:13:20", "01.02.2024 00:00:00"], ["%d.%m.%Y %H:%M:%S"]),
        (["01/02/2024 10:00"], ["%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M"]),
        (["01/02/2024 10:00", "14/02/2024 10:00"], ["%d/%m/%Y %H:%M"]),
        (["02/14/2024 10:00 PM"], ["%m/%d/%Y %I:%M %p"]),
        (["10/Oct/2000:13:55:36 -0700"], ["%d/%b/%Y:%H:%M:%S %z"]),
        (["01.02.2024", "soon"], []),
    ],
)
def test_forms_of_times_that_are_met_often_are_known(texts: list[str], patterns: list[str]) -> None:
    assert patterns_of(texts) == patterns
    assert all(read_time_form(None, pattern) for pattern in patterns)


def test_a_time_in_a_known_form_names_the_option() -> None:
    table = read_arrivals([{"at": "14.11.2023 22:13", "k": "a", "v": 1.0}], PLAN).table
    assert 'is not a time; is it of the form `--time-format "%d.%m.%Y %H:%M"`?' in table.column("_text")[0].as_py()
    with pytest.raises(InputError, match=r"""'day' \(`--time-format "%d.%m.%Y"`\) could be meant"""):
        read_arrivals([{"day": "14.11.2023", "k": "a", "v": 1.0}], PLAN)


def test_a_table_without_times_names_what_could_be_meant() -> None:
    rows = [{"k": "a", "v": 1.0, "day": 20240131, "when": "2024-01-01T10:00:00", "ms": 1_700_000_000_000, "n": 3}]
    with pytest.raises(InputError) as raised:
        read_arrivals(rows, PLAN)
    assert str(raised.value) == (
        "table: has neither a column 'at', the arrival time, nor a column 'ts', the source time of 'A'; name the column"
        " of arrival times, `--arrival NAME`, or, if the table is history, of source times, `--source-time NAME`;"
        " 'day' (`--time-format \"%Y%m%d\"`), 'when' or 'ms' (`--time-unit ms`) could be meant"
    )


def test_decimals_may_have_a_comma(tmp_path: Path) -> None:
    file = tmp_path / "d.csv"
    file.write_text("at;k;v;n\n1.5;a,b;20,5;1\n2;c;7;2\n3;c;1.500,0;3\n4;c;1.5;4\n")
    plan = querylang.compile_text(
        "event A { string k; float v; integer n; }\ninputs { A() retain 1; } find A as a"
    ).plan
    names = ColumnNames(csv=read_csv_form("delimiter=; decimal=,"))
    table = read_arrivals(file, plan, names).table
    assert table.column("k:string").to_pylist() == ["a,b", "c", "c", "c"]
    assert table.column("v:float").to_pylist()[:2] == [20.5, 7.0]
    texts = table.column("_text").to_pylist()
    thousands, points = "if points divide thousands: `--csv thousands=.`", "with points in decimals: `--csv decimal=.`"
    assert texts[2:] == [
        f"line 4: '1.500,0' is not a value of 'v' (float); {thousands}: 3;c;1.500,0;3",
        f"line 5: '1.5' is not a value of 'v' (float); {points}: 4;c;1.5;4",
    ]
    told = read_arrivals(file, plan, ColumnNames(csv=read_csv_form("delimiter=;"))).table.column("_text")[0].as_py()
    assert "'20,5' is not a value of 'v' (float); with commas in decimals: `--csv decimal=,`" in told


def test_types_are_inferred_from_decimals_with_a_comma(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("at;v;n\n1;20,5;1\n2;7;2\n")
    names = ColumnNames(csv=read_csv_form({"delimiter": ";", "decimal": ","}))
    found = infer_schemas(tmp_path / "d.csv", names=names, event="A")
    assert found == {"A": {"v": Type.FLOAT, "n": Type.INTEGER}}
    with pytest.raises(InputError, match="csv: decimal '_' is neither a point nor a comma; write `decimal=,`"):
        read_csv_form("decimal=_")
    assert str(read_csv_form("delimiter=; decimal=,")) == "delimiter=; decimal=,"

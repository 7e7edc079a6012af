"""Footers of Parquet files: they say what pyarrow's own reader says, and damage is refused."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import querylang
from querylang.errors import InputError
from runtime.reading.formats.parquet_files import column_chunks
from runtime.reading.tables import iter_arrivals

KINDS = ["BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"]

TABLE = pa.table(
    {
        "at": [1.0, 2.0, None, 4.0],
        "k": ["a", "b", "b", None],
        "n": pa.array([1, 2, 3, 4], pa.int32()),
        "is": [True, None, False, True],
        "nested": [[{"x": [1.5], "y": b"z"}], [], None, [{"x": None, "y": None}]],
        "day": pa.array([1, 2, 3, None], pa.timestamp("ns")),
        "d": pa.array([1, 2, None, 4]).cast(pa.decimal128(25, 2)),
    }
)

PLAN = querylang.compile_text(
    "event A { float at; string k; }\ninputs { A() key k within 30.0; } find A as a1 -> A as a2"
).plan

LAYOUTS = [
    {},
    {"row_group_size": 1},
    {"use_dictionary": False, "column_encoding": {"k": "DELTA_BYTE_ARRAY"}},
    {"compression": "zstd", "data_page_version": "2.0", "write_page_index": True, "store_schema": False},
    {"use_deprecated_int96_timestamps": True, "write_statistics": False},
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: ",".join(layout) or "plain")
def test_chunks_are_those_that_pyarrow_finds(tmp_path: Path, layout: dict[str, object]) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path, **layout)
    metadata = pq.ParquetFile(path).metadata
    found = [
        (KINDS[chunk.kind], chunk.values, chunk.size, chunk.path, chunk.has_dictionary, chunk.has_delta_encoding)
        for chunks in column_chunks(path)
        for chunk in chunks
    ]
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    assert found == [
        (
            column.physical_type,
            column.num_values,
            column.total_uncompressed_size,
            column.path_in_schema,
            column.has_dictionary_page,
            "DELTA_BYTE_ARRAY" in column.encodings,
        )
        for column in columns
    ]


def test_a_damaged_byte_of_a_footer_never_ends_the_process(tmp_path: Path) -> None:
    # Sizes of histograms that do not fit end the process where pyarrow describes a column.
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE.select(["at", "k"]), path)
    whole = path.read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    chooser, refused = random.Random(1), []
    for place in range(len(whole) - footer, len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chooser.randrange(8)
        path.write_bytes(damaged)
        try:
            list(iter_arrivals(path, PLAN))
        except InputError as error:
            refused.append(str(error))
    assert len(refused) > 50
    assert all("a.parquet: " in message for message in refused)

"""Records that arrive together are ordered by place, source partition and offset, whatever their sources are called."""

from __future__ import annotations

from itertools import permutations

import pyarrow as pa
import pytest

import querylang
from runtime.columns.arrivals import Arrivals, in_arrival_order, place_of
from runtime.reading.tables import iter_arrivals, read_arrivals
from runtime.replay.replay import read_records, replay_records

PLAN = querylang.compile_text(
    "event A { integer n; } event B { integer n; } query Q { inputs { A() within 9.0; B() within 9.0; }"
    " find A as a -> B as b }"
).plan
LARGE = 2**31 + 5


def table(event: str, *rows: tuple[float, int, int]) -> list[dict[str, object]]:
    return [{"at": at, "event": event, "partition": partition, "offset": n, "n": n} for at, partition, n in rows]


def test_place_then_partition_then_offset() -> None:
    parts = [
        *iter_arrivals(table("A", (1.0, 2, 1), (1.0, LARGE, 0), (2.0, 0, 3)), PLAN, source="z", place=place_of(0, 7)),
        *iter_arrivals(table("A", (1.0, 0, 4), (1.0, 0, 5)), PLAN, source="a", place=place_of(1)),
        *iter_arrivals(table("A", (1.0, 9, 6)), PLAN, source="b", place=place_of(0, 8)),
    ]
    for order in permutations(parts):
        found = in_arrival_order(Arrivals.concat(order).table)
        assert found.column("n:integer").to_pylist() == [1, 0, 6, 4, 5, 3]


def test_a_partition_may_be_any_integer() -> None:
    assert read_arrivals(table("A", (1.0, LARGE, 1)), PLAN).system("partition").tolist() == [LARGE]


@pytest.mark.parametrize("order", [("A", "B"), ("B", "A")])
def test_tables_of_a_replay_come_in_the_order_in_which_they_were_given(order: tuple[str, str]) -> None:
    records = read_records([table(event, (1.0, 0, 1)) for event in order], PLAN)
    assert len(replay_records(PLAN, records).matches.get("Q", ())) == (order == ("A", "B"))


def test_batches_of_which_one_has_records_are_that_one_if_the_others_have_the_same_columns() -> None:
    (some,) = iter_arrivals(table("A", (1.0, 0, 1), (2.0, 0, 2)), PLAN, source="a", place=place_of(0))
    none = Arrivals(some.table.slice(0, 0))
    assert Arrivals.concat([none, some, none]).table is some.table
    wider = Arrivals(none.table.append_column("more", pa.nulls(0, pa.string())))
    assert Arrivals.concat([some, wider]).table.column("more").null_count == 2

"""Keys: dense numbers within a call, and buckets that checkpoints depend on."""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa

from querylang import compile_text
from querylang.plan.expression import FieldOf, Type
from querylang.plan.library import LOCATION_FIELDS
from querylang.plan.model import EventType, Field, Key, Plan
from runtime.columns.arrivals import Arrivals, arrivals_schema
from runtime.columns.keys import NO_KEY, bucket_of, group_rows, number_keys
from runtime.reading.tables import read_arrivals
from tests.runtime.plans import an_input, chain

LOCATION = pa.struct([(name, pa.float64()) for name in LOCATION_FIELDS])


def location(x1: float, y1: float) -> dict[str, float]:
    return dict(zip(LOCATION_FIELDS, (x1, y1, 5.0, 6.0), strict=True))


def test_equal_keys_have_equal_numbers_and_nulls_none() -> None:
    city, card = pa.array(["a", "b", "a", None, "a"]), pa.array([1, 1, 1, 1, 2])
    numbers, count = number_keys([city, card], 5)
    assert count == 3
    assert numbers[0] == numbers[2]
    assert len({numbers[0], numbers[1], numbers[4]}) == 3
    assert numbers[3] == NO_KEY


def test_zero_of_either_sign_is_one_key() -> None:
    numbers, count = number_keys([pa.array([0.0, -0.0, 1.0])], 3)
    assert count == 2
    assert numbers[0] == numbers[1]


def test_decimals_and_locations_are_keys() -> None:
    prices = pa.array([Decimal("0.1"), Decimal("0.2"), Decimal("0.10"), None], pa.decimal128(38, 18))
    assert number_keys([prices], 4)[0].tolist() == [0, 1, 0, NO_KEY]
    places = [location(1.0, 2.0), location(1.0, 3.0), location(1.0, 2.0), None]
    numbers, count = number_keys([pa.array(places, LOCATION)], 4)
    assert (numbers.tolist(), count) == ([0, 1, 0, NO_KEY], 2)


def test_without_keys_all_is_one_partition() -> None:
    assert number_keys([], 3)[0].tolist() == [0, 0, 0]


def test_rows_of_a_key_keep_their_order() -> None:
    start, rows = group_rows(np.array([1, 0, 1, -1, 0, 1]), 2)
    assert start.tolist() == [0, 2, 5]
    assert rows.tolist() == [1, 4, 0, 2, 5]


def _buckets(type_: Type, values: list[object], buckets: int) -> list[int]:
    event = EventType("A", (Field("k", type_),))
    query = replace(chain([an_input(within=1, keys=(FieldOf(type_, 0, "k"),))], (0,)), keys=(Key("k", type_),))
    plan = Plan((event,), (query,))
    count = len(values)
    source = pa.array(["s"] * count).dictionary_encode()
    columns = [
        [0] * count,
        [0] * count,
        source,
        [0] * count,
        range(count),
        [0] * count,
        [None] * count,
        [0] * count,
        values,
    ]
    return bucket_of(Arrivals(pa.table(columns, schema=arrivals_schema(plan))), plan, query, buckets).tolist()


def test_buckets_never_change() -> None:
    """These numbers are part of every checkpoint ever written."""
    assert _buckets(Type.INTEGER, [0, 1, -1, 2**62, None], 64) == [47, 1, 32, 43, -1]
    assert _buckets(Type.STRING, ["", "a", "N14228", "żółć", None], 64) == [48, 39, 24, 51, -1]
    assert _buckets(Type.FLOAT, [0.0, -0.0, 1.5, float("nan")], 64) == [47, 47, 10, 6]
    assert _buckets(Type.BOOLEAN, [True, False, None], 64) == [1, 47, -1]
    assert _buckets(Type.DECIMAL, [Decimal("0.1"), Decimal("0.2"), Decimal(10**20 - 1), None], 64) == [6, 63, 62, -1]
    assert _buckets(Type.LOCATION, [location(1.0, 2.0), location(0.0, 2.0), location(-0.0, 2.0), None], 64) == [
        46,
        4,
        4,
        -1,
    ]


def test_keys_spread_over_the_buckets() -> None:
    counts = np.bincount(_buckets(Type.INTEGER, list(range(64_000)), 64), minlength=64)
    assert counts.min() > 800
    assert counts.max() < 1_200


def test_the_bucket_of_a_key_is_the_same_by_both_rules_for_nulls() -> None:
    """By the earlier one `half()` fails where `v` is null, so queries of both rules may have different keys."""
    text = "event A { integer v; action half() returns string { if v > 5 { return 'high'; } return 'low'; } }"
    text += " query Q { inputs { A() key half() as half retain 2; } find A as a -> A as b }"
    plan = compile_text(text.replace("'", '"')).plan
    earlier = plan.with_failing_nulls()
    records = read_arrivals([{"at": n, "v": v} for n, v in enumerate([9, 1, None])], plan)
    found = [bucket_of(records, own, own.queries[0], 64).tolist() for own in (plan, earlier)]
    assert found[0] == found[1]
    assert found[0][1] == found[0][2] != found[0][0]

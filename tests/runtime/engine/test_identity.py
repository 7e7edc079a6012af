"""The identity of a match (query, instance, key, the coordinates of its members), and its key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from querylang import compile_text
from runtime.replay.replay import read_records, replay_records

EVENT = "event A { integer k; float v; }\n"
FIND = "inputs { A() key k within 30.0; } find A as a1 -> A as a2"
PLAN = compile_text(f"{EVENT}query Q {{ {FIND} }}").plan


def ids(*tables: Any, plan: Any = PLAN) -> list[str]:
    found: list[str] = replay_records(plan, read_records(tables, plan)).matches["Q"].column("match_id").to_pylist()
    return found


def rows(key: int, partition: int = 0, offsets: tuple[int, int] = (1, 2)) -> list[dict[str, Any]]:
    return [
        {"at": place, "k": key, "v": 1.0, "source": "s", "partition": partition, "offset": offset}
        for place, offset in enumerate(offsets)
    ]


def test_key_partition_and_offset_are_part_of_it() -> None:
    found = [ids(rows(1)), ids(rows(2)), ids(rows(1, 1)), ids(rows(1, 1 << 32)), ids(rows(1, 0, (1, 3)))]
    assert len({match for matches in found for match in matches}) == len(found)


def test_instance_and_query_are_part_of_it() -> None:
    text = f"{EVENT}query Q {{ parameters {{ float least := 0.0; }} {FIND} }}"
    assert ids(rows(1), plan=compile_text(text).plan) == ids(rows(1))
    other = compile_text(f"{EVENT}query P {{ {FIND} }}").plan
    (found,) = replay_records(other, read_records([rows(1)], other)).matches["P"].column("match_id").to_pylist()
    assert [found] != ids(rows(1))


def test_the_text_and_other_queries_are_not() -> None:
    text = f"{EVENT}query P {{ {FIND} }}\nquery Q {{ {FIND.replace('30.0', '31.0')} where a1.v = a2.v }}"
    assert ids(rows(1), plan=compile_text(text).plan) == ids(rows(1))


def test_files_with_a_column_of_sources_do_not_share_identities(tmp_path: Path) -> None:
    names = ["1.csv", "2.csv"]
    for number, name in enumerate(names):
        (tmp_path / name).write_text(f"at,k,v,source\n{number}00,1,1,s\n{number}01,1,2,s\n")
    assert len(set(ids(*(tmp_path / name for name in names)))) == 2


def test_a_float_that_is_a_key_keeps_the_value_of_each_event() -> None:
    text = f"event A {{ float k; float v; }}\nquery Q {{ {FIND} }}"
    given = [{"at": place, "k": key, "v": 1.0} for place, key in enumerate([-0.0, 0.0])]
    plan = compile_text(text).plan
    (members,) = replay_records(plan, read_records([given], plan)).matches["Q"].column("members").to_pylist()
    assert [str(members[name]["fields"]["k"]) for name in ("a1", "a2")] == ["-0.0", "0.0"]

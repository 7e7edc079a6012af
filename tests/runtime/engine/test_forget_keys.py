"""State of keys that are forgotten: timers, keys that are not loaded, what is counted, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

import ensue
from querylang import compile_text
from querylang.errors import InputError
from querylang.plan.model import Plan, from_dict, to_dict
from runtime.columns.arrivals import Arrivals, arrivals_schema, column_name
from runtime.columns.rows import LEAST
from runtime.engine.engine import Engine
from runtime.engine.snapshot import StateError
from runtime.policies.settings_text import parse_forget_keys, with_forget_keys

SECOND = 1_000_000
TEXT = "event A { integer k; } query Q { inputs { A() key k retain 2WAIT; } find A as a -> A as b { BLOCK } }"
DAY = 86_400 * SECOND


def plan_of(length: int | None = 100 * SECOND, wait: str = "", block: str = "") -> Plan:
    return with_forget_keys(compile_text(TEXT.replace("WAIT", wait).replace("BLOCK", block)).plan, length)


def records(plan: Plan, keys: Sequence[int], at: Sequence[int]) -> Arrivals:
    """One A a key, at these seconds; it happens when it arrives."""
    schema, count = arrivals_schema(plan), len(keys)
    arrival = pa.array(np.array(at, np.int64) * SECOND)
    values: dict[str, object] = {
        "_kind": np.zeros(count, np.int16),
        "_arrival": arrival,
        "_source_time": arrival,
        "_source": pa.array(["s"] * count).dictionary_encode(),
        "_offset": np.arange(count, dtype=np.int64),
        column_name("k", plan.event("A").fields[0].type): np.array(keys, np.int64),
    }
    columns = [pa.array(values.get(field.name, [None] * count), field.type) for field in schema]
    for place, field in enumerate(schema):
        if field.name in ("_partition", "_place"):
            columns[place] = pa.array(np.zeros(count, np.int64)).cast(field.type)
    return Arrivals(pa.table(columns, schema=schema))


def forgotten(engine: Engine) -> int:
    return sum(row["count"] for row in engine.ledger().to_pylist() if row["what"] == "forgotten_keys")


def test_a_timer_frees_the_state_of_silent_keys() -> None:
    plan = plan_of()
    engine = Engine(plan)
    engine.process(records(plan, [1, 2, 1], [10, 20, 30]))
    assert engine.next_wake() == 120 * SECOND
    assert engine.next_release() is None
    engine.process(Arrivals.empty(plan), now=120 * SECOND - 1)
    assert (engine.retained(), forgotten(engine)) == (3, 0)
    engine.process(Arrivals.empty(plan), now=120 * SECOND)
    assert (engine.retained(), forgotten(engine), engine.next_wake()) == (2, 1, 130 * SECOND)
    engine.process(Arrivals.empty(plan), now=500 * SECOND)
    assert (engine.retained(), forgotten(engine), engine.next_wake()) == (0, 2, None)


def test_the_end_of_a_stream_does_not_wait_for_keys_to_be_forgotten() -> None:
    plan = plan_of(wait=" wait 3.0")
    engine = Engine(plan)
    engine.process(records(plan, [1], [10]))
    assert engine.next_release() == engine.next_wake() or engine.next_release() is None
    engine.flush()
    assert (engine.retained(), forgotten(engine)) == (1, 0)
    assert engine.clock is not None
    assert engine.clock <= 13 * SECOND


def test_cold_keys_are_forgotten_one_by_one() -> None:
    """Most keys are not loaded by a small batch; those whose time is over are."""
    plan, count = plan_of(), 2 * LEAST
    engine = Engine(plan)
    engine.process(records(plan, range(count), [number // 100 for number in range(count)]))
    for now in range(83, 190, 7):
        engine.process(records(plan, [-now], [now]))
        silent = min(count, max(0, now - 100 + 1) * 100)
        alive = sum(1 for other in range(83, now + 1, 7) if now - other < 100)
        own = len(range(83, now + 1, 7)) - alive
        assert forgotten(engine) == silent + own
        assert engine.stored_events() == count - silent + alive
    matches = engine.process(records(plan, [5, count - 1], [190, 190])).matches
    assert not any(len(table) for table in matches.values())


def test_a_key_that_was_forgotten_begins_anew() -> None:
    plan = plan_of()
    whole = records(plan, [1, 2, 1, 1, 2], [0, 50, 100, 120, 149])
    found = Engine(plan).process(whole).matches["Q"]
    assert sorted(row["time"].timestamp() for row in found.to_pylist()) == [120.0, 149.0]


def test_the_count_of_blocks_that_were_cut_off_is_forgotten_too() -> None:
    plan = plan_of(block='string s := "x"; while true { s := s + s; }')
    at = [*range(22), 200, 201]
    outputs = Engine(plan).process(records(plan, [1] * 24, at)).outputs
    texts = outputs.sort_by("time")["text"].to_pylist()
    assert [text.startswith("not run") for text in texts] == [False] * 20 + [True, False]


def test_it_is_part_of_the_plan() -> None:
    plan = plan_of()
    assert from_dict(to_dict(plan)) == plan
    state = Engine(plan)
    state.process(records(plan, [1], [10]))
    with pytest.raises(StateError, match="forget_keys"):
        Engine.restore(plan_of(50 * SECOND), state.snapshot())
    with pytest.raises(StateError):
        Engine.restore(plan_of(None), state.snapshot())


def test_the_setting_of_a_replay() -> None:
    rows = [{"at": float(at), "event": "A", "k": 1} for at in (0, 10, 100, 110)]
    text = TEXT.replace("WAIT", "").replace("BLOCK", "")
    assert len(ensue.replay(text, rows).matches) == 3
    result = ensue.replay(text, rows, forget_keys="90 s")
    assert len(result.matches) == 2
    assert result.account() == "4 received = 4 used; beside the sum: 1 forgotten_keys"
    assert len(result.steps) == len(ensue.replay(text, rows).steps)
    for wrong in ("soon", "0 s", 5, "9" * 40 + " days"):
        with pytest.raises(InputError, match="forget_keys"):
            ensue.replay(text, rows, forget_keys=wrong)  # type: ignore[arg-type]
    assert parse_forget_keys("30 days") == 30 * DAY

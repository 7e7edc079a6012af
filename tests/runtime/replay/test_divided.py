"""Keys divided among threads: the same answer as in one thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import querylang
from querylang.errors import InputError
from querylang.plan.model import Plan
from runtime import threads
from runtime.replay import divided, replay
from runtime.replay.replay import measured_replay, read_records
from runtime.results import match_table
from runtime.results.schemas import Results

EVENTS = "event A { integer id; string k; float v; }\nevent B { integer id; string k; float v; }\n"
INPUTS = "inputs { A() key k within 9.0 wait 2.0; B() key k within 9.0 wait 2.0; }"
PLAIN = f"query Q {{ {INPUTS} find A as a -> B as b where b.v > a.v }}"
BLOCK = f"query P {{ {INPUTS} find A as a -> B as b where b.v > a.v {{ print a.k + b.id.toString(); }} }}"
EVERY = f"query E {{ {INPUTS} find every A as a select count() as n having count() > 3 }}"
EITHER = f"query O {{ {INPUTS} find A as a or (B as b and B as c) }}"
TRAILING = f"query T {{ {INPUTS} find A as a -> B as b -> wait(1.5) as t }}"
ARRIVAL = "query N { inputs { A(v > 0.2) key k within 3.0; } find A as a -> A as b }"
NO_KEY = "query K { inputs { A() within 1.0; } find A as a -> A as b }"
OTHER_KEY = "query I { inputs { A() key id within 1.0; } find A as a -> A as b }"


def plan_of(*queries: str) -> Plan:
    return querylang.compile_text(EVENTS + "\n".join(queries)).plan


def table(count: int = 3_000) -> pa.Table:
    """Late and unknown rows are among them, rows without a key, and empty ones."""
    random = np.random.default_rng(5)
    at = np.sort(random.integers(0, count * 5, count)) / 100
    kinds = random.choice(["A", "B", "C", None], count, p=[0.48, 0.48, 0.02, 0.02])
    keys = random.choice([*"abcdefgh", None], count)
    times = at - random.random(count) * 3
    return pa.table(
        {
            "at": at,
            "event": pa.array(kinds, pa.string()),
            "ts": times,
            "id": np.arange(count),
            "k": pa.array(keys, pa.string()),
            "v": random.random(count),
        }
    )


def answer(plan: Plan, rows: pa.Table, **options: Any) -> dict[str, Any]:
    results, figures = measured_replay(plan, read_records([rows], plan), **options)
    return {
        **{name: _shown(found) for name, found in results.matches.items()},
        "outputs": _shown(results.outputs),
        "discarded": _shown(results.discarded),
        "ledger": _shown(results.ledger),
        "figures": figures.to_pylist(),
    }


def _shown(found: pa.Table | None) -> list[dict[str, Any]]:
    """All but the column that only orders the matches of one key and step."""
    return [] if found is None else found.select([name for name in found.column_names if name != "_rank"]).to_pylist()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Small inputs are divided; tells how many records each call of the engines had."""
    found: list[int] = []
    process = divided.DividedEngine.process

    def counted(self: divided.DividedEngine, arrivals: Any) -> list[Results]:
        found.append(len(arrivals))
        return process(self, arrivals)

    monkeypatch.setattr(divided.DividedEngine, "process", counted)
    monkeypatch.setattr(divided, "LEAST", 1)
    monkeypatch.setattr(match_table, "LEAST", 1)
    monkeypatch.setattr(replay, "CHUNK", 400)
    return found


@pytest.mark.parametrize("options", [{}, {"flush": False}, {"until": 60_000_000}])
@pytest.mark.parametrize(
    "queries", [(PLAIN,), (BLOCK,), (EVERY,), (EITHER,), (TRAILING,), (ARRIVAL,), (PLAIN, BLOCK, TRAILING)]
)
def test_threads_give_the_answer_of_one(
    queries: tuple[str, ...], options: dict[str, Any], calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, rows = plan_of(*queries), table()
    monkeypatch.setenv("ENSUE_THREADS", "1")
    expected = answer(plan, rows, **options)
    assert not calls
    monkeypatch.setenv("ENSUE_THREADS", "3")
    assert answer(plan, rows, **options) == expected
    assert calls
    assert all(expected[query.title] for query in plan.queries)


@pytest.mark.parametrize("queries", [(NO_KEY,), (PLAIN, OTHER_KEY)])
def test_what_is_not_divided_by_one_key_has_one_thread(
    queries: tuple[str, ...], calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENSUE_THREADS", "3")
    answer(plan_of(*queries), table(200))
    assert not calls


def test_control_events_concern_all_keys(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENSUE_THREADS", "3")
    rows = table(200)
    names = rows.column("event").to_pylist()
    names[20] = "com.apama.queries.SetDelayedEventsLeeway(300.0, 10.0)"
    answer(plan_of(PLAIN), rows.set_column(1, "event", pa.array(names, pa.string())))
    assert not calls


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "9999"])
def test_a_wrong_number_of_threads_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENSUE_THREADS", text)
    with pytest.raises(InputError, match=rf"expected a number of threads from 1 to 1024; found '{text}'"):
        threads.thread_count()


def test_the_first_mistake_of_all_threads_is_raised() -> None:
    def run(number: int) -> int:
        raise InputError(str(number))

    with pytest.raises(InputError, match=r"^1$"):
        threads.in_threads(run, [1, 2, 3], 3)


def test_a_member_has_the_source_time_that_its_query_takes() -> None:
    """The table has no source times: the query takes them from a field."""
    text = '@TimeFrom("t") event A { string k; float t; }\n'
    text += "query Q { inputs { A() key k within 9.0 wait 2.0; } find A as a -> A as b }"
    plan = querylang.compile_text(text).plan
    rows = pa.table({"at": [10.0, 11.0], "event": ["A", "A"], "k": ["x", "x"], "t": [9.5, 10.25]})
    matches = measured_replay(plan, read_records([rows], plan))[0].matches
    assert _source_times(matches["Q"]) == [(9.5, 10.25)]


def _source_times(matches: pa.Table) -> list[tuple[float | None, ...]]:
    members = matches.column("members").to_pylist()
    return [
        tuple(time if time is None else time.timestamp() for time in (match[name]["source_time"] for name in "ab"))
        for match in members
    ]

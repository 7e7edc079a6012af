"""States that earlier versions of the engine have written are read, and the engine continues from them.

Each sample in `tests/snapshots` is what `Engine.snapshot` gave, of the version that its test names, after the rows below.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import querylang
from runtime.engine.engine import Engine
from runtime.reading.tables import read_arrivals
from runtime.results.schemas import in_order

SAMPLES = Path(__file__).parents[2] / "snapshots"
ROWS = [
    {"at": "10:00:20", "event": "A", "k": 1, "v": 1.0, "ts": "10:00:10"},
    {"at": "10:00:21", "event": "A", "k": 2, "v": 5.0, "ts": "10:00:05"},
    {"at": "10:00:22", "event": "com.apama.queries.SetDelayedEventsLeeway(15.0, 30.0)"},
    {"at": "10:00:30", "event": "A", "k": 1, "v": 2.0, "ts": "10:00:29"},
    {"at": "10:00:31", "event": "B", "k": 1, "v": 3.0, "ts": "10:00:28"},
    {"at": "10:00:31", "event": "B", "k": 2, "v": 9.0, "ts": "10:00:14"},
]
LATER = [
    {"at": "10:00:32", "event": "B", "k": 2, "v": 9.5, "ts": "10:00:18"},
    {"at": "10:00:33", "event": "A", "k": 1, "v": 4.0, "ts": "10:00:12"},
]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("without-clocks", id="version 1, from before there were shared clocks"),
        pytest.param("alike", id="version 2, of queries that share what they store"),
    ],
)
def test_a_state_of_an_earlier_version_goes_on(name: str) -> None:
    plan = querylang.compile_text((SAMPLES / f"{name}.query").read_text()).plan
    restored = Engine.restore(plan, (SAMPLES / f"{name}.state").read_bytes())
    whole = Engine(plan)
    whole.process(read_arrivals(ROWS, plan))
    assert restored.retained() == whole.retained() > 0
    for step in (lambda engine: engine.process(read_arrivals(LATER, plan)), Engine.flush):
        found, expected = (in_order(plan, step(engine)) for engine in (restored, whole))
        assert found.matches.keys() == expected.matches.keys()
        assert {name: table.to_pylist() for name, table in found.matches.items()} == {
            name: table.to_pylist() for name, table in expected.matches.items()
        }
        assert found.discarded is not None
        assert expected.discarded is not None
        assert found.discarded.to_pylist() == expected.discarded.to_pylist()

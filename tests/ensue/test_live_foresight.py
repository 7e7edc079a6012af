"""Single events of open queries: most are answered without the engine, and every answer is its."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal

import ensue
from ensue.live.foresight import PlainRows
from querylang.plan.model import Plan
from runtime.columns.arrivals import column_name
from runtime.engine.engine import Engine
from runtime.instants import NO_TIME
from runtime.reading.column_names import STANDARD
from runtime.reading.tables import read_following
from tests.support.answers import facts

EVENTS = """
event A { integer id; string k; float v; boolean up; }
event B { integer id; string k; float v; boolean up; }
"""
QUERIES = f"""{EVENTS}
query Rise {{ inputs {{ A() key k within 5.0; B(v > 0.2) key k within 9.0; }}
    find A as a -> B as b where b.v > a.v and not a.up {{ print a.k + b.id.toString(); }} }}
query Last {{ inputs {{ A() key up, k retain 3; B() key up, k retain 2; }}
    find B as b -> A as a1 -> A as a2 where a2.v < b.v within 6.0 without B as n where n.v > 0.7 }}
query Any {{ inputs {{ A(v > 0.3) within 4.0; B() within 4.0; }} find A as a or (B as b -> A as c) where 1 / c.id >= 0 }}
query Mean {{ inputs {{ A() key k within 8.0 with unique id; }}
    find every A as a select avg(a.v) as mean select last(a) as newest having mean > 0.4 {{ print mean.toString(); }} }}
query Quiet {{ inputs {{ A() key k within 5.0; B() key k within 9.0; }}
    find A as a -> B as b -> wait(1.5) as silence without A as x {{ print a.k; }} }}
"""
DELAYED = f"""{EVENTS}
query Waits {{ inputs {{ A() key k within 5.0 wait 1.0; B() key k within 9.0 wait 2.5; }}
    find A as a -> B as b where b.v > a.v {{ print a.k; }} }}
query Mixed {{ inputs {{ A() key k within 5.0 wait 2.0; B() key k within 9.0; }}
    find A as a -> B as b -> wait(1.0) without A as x }}
"""


def stream(chooser: random.Random, count: int) -> list[dict[str, Any]]:
    """Rows in order of arrival; few of them need the readers of tables."""
    rows, at = list[dict[str, Any]](), 100.0
    for number in range(count):
        at += chooser.choice([0.0, 0.25, 0.5, 1.0])
        row: dict[str, Any] = {"at": at, "event": chooser.choice("AB"), "id": number % 7, "k": chooser.choice("xyz")}
        row |= {"v": round(chooser.random(), 2), "up": chooser.random() < 0.5}
        row["ts"] = at - chooser.choice([0.0, 0.0, 0.5, 1.0, 2.0, 4.0])
        match chooser.randrange(40):
            case 0:
                row["k"] = None
            case 1:
                row["event"] = "C"
            case 2:
                row["v"] = "wrong"
            case 3:
                row["id"] = "5"
            case 4:
                row["at"] = f"1970-01-01T00:{int(at) // 60:02}:{int(at) % 60:02}.75Z"
                at = int(at) + 0.75
        rows.append(row)
    return rows


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("queries", [QUERIES, DELAYED])
def test_looking_at_each_answer_gives_the_answer_of_a_replay(queries: str, number: int, tmp_path: Path) -> None:
    chooser = random.Random(number)
    rows = stream(chooser, 250)
    expected = facts([ensue.replay(queries, rows)])
    live, answers = ensue.open(queries), []
    given = 0
    while given < len(rows):
        size = chooser.choice([1, 1, 1, 1, 1, 3, 30])
        answers.append(live.send(rows[given : given + size]))
        given += size
        match chooser.randrange(60):
            case 0:
                live.save(tmp_path / "state", overwrite=True)
                live = ensue.open(queries, state=tmp_path / "state")
            case 1:
                answers.append(live.advance(max(live.clock.timestamp() if live.clock else 0.0, 100.0)))
        if chooser.random() < 0.8:
            assert len(answers[-1]) == len(answers[-1].matches) == len(answers[-1].match_objects())
    answers.append(live.flush())
    assert len(expected["matches"]) > 20
    assert facts(answers) == expected


def alone(name: str) -> str:
    """One of the queries, without the others."""
    return EVENTS + next(part for part in f"{QUERIES}{DELAYED}".split("query ") if part.startswith(name)).join(
        ["query ", ""]
    )


@pytest.mark.parametrize("name", ["Rise", "Last", "Any", "Mean", "Quiet", "Waits", ""])
def test_the_frame_of_a_single_match_is_that_of_its_table(name: str) -> None:
    """`matches` is made of the events, `matches_of` of an Arrow table."""
    text = alone(name) if name else QUERIES
    live, frames, tables = ensue.open(text), list[pd.DataFrame](), list[pd.DataFrame]()
    whole = ensue.replay(text, stream(random.Random(5), 250)).matches
    for row in stream(random.Random(5), 250):
        answer = live.send(row)
        frames.append(answer.matches)
        assert len(frames[-1]) == len(answer)
        if name:
            tables.append(answer.matches_of(name))
    assert_parts_are(frames, whole)
    if name:
        assert_parts_are(tables, whole)


def assert_parts_are(frames: list[pd.DataFrame], whole: pd.DataFrame) -> None:
    """Each frame has the columns, the types and the kind of index of the whole, and together they are its beginning."""
    for frame in frames:
        assert frame.dtypes.equals(whole.dtypes)
        assert frame.columns.equals(whole.columns)
        assert frame.index.equals(pd.RangeIndex(len(frame)))
    told = pd.concat(frames, ignore_index=True)
    assert len(told) > 10
    assert_frame_equal(told, whole.iloc[: len(told)])


def test_who_names_the_columns_of_a_frame_changes_no_other() -> None:
    live = ensue.open("event A { integer n; } query Q { inputs { A() within 9.0; } find A as a }")
    frames = [live.send({"at": at, "n": 1}).matches for at in range(3)]
    frames[1].columns.name = "mine"
    frames[1].loc[0, "query"] = "other"
    assert [frame.columns.name for frame in frames] == [None, "mine", None]
    assert frames[2].loc[0, "query"] == live.send({"at": 4, "n": 1}).matches.loc[0, "query"] == "Q"


def test_windows_of_single_events_do_not_keep_what_has_left_them() -> None:
    text = "event A { integer n; } query Q { inputs { A() retain 2; } find A as a -> A as b }"
    live = ensue.open(text)
    for at in range(300):
        assert len(live.send({"at": at, "n": at})) == (at > 0)
    (query,) = live._foresight._events._queries  # type: ignore[union-attr]
    assert sum(map(len, query.windows._events.values())) < 100


def test_timers_of_one_key_do_not_pile_up() -> None:
    text = "event A { integer n; } query Q { inputs { A() within 9.0; } find A as a -> wait(3.0) }"
    live = ensue.open(text)
    for at in range(300):
        assert len(live.send({"at": at, "n": at})) == (at > 2)
    (query,) = live._foresight._events._queries  # type: ignore[union-attr]
    assert len(query._timers) < 10


def test_single_events_do_not_call_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    process = Engine.process

    def counted(engine: Engine, *given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        return process(engine, *given, **named)

    monkeypatch.setattr(Engine, "process", counted)
    text = f"{EVENTS} query Q {{ inputs {{ A() key k within 9.0; }} find A as a -> A as b where b.v > a.v + 0.4 }}"
    live, chooser, found = ensue.open(text), random.Random(1), 0
    for number in range(3_000):
        row = {"at": number / 4, "event": "A", "id": number, "k": chooser.choice("xyz"), "v": chooser.random()}
        found += len(live.send(row | {"up": True}))
    assert found > 500
    assert calls <= 2
    assert live.send({"at": 750, "event": "A", "id": 0, "k": "x", "v": 0.0, "up": True}).ledger["count"].tolist()[
        :2
    ] == [
        3_001,
        3_001,
    ]


def test_every_value_of_a_key_gives_the_identity_of_a_replay() -> None:
    text = "event A { float f; integer n; string s; boolean b; }\n"
    text += "query Q { inputs { A() key f, n, s, b within 9.0; } find A as a -> A as a2 }"
    keys = [
        (0.0, -(2**63), "ü", True),
        (-0.0, -(2**63), "ü", True),
        (1e300, 2**63 - 1, "", False),
        (float("inf"), 0, "a\0", True),
    ]
    rows = [
        {"at": at, "event": "A", "f": f, "n": n, "s": s, "b": b}
        for at, (f, n, s, b) in enumerate([*keys, *keys], start=-4)
    ]
    live = ensue.open(text)
    matches = [match for row in rows for match in live.send(row).match_objects()]
    assert matches == ensue.replay(text, rows).match_objects()
    assert len(matches) == 5


@pytest.mark.parametrize("number", range(3))
def test_a_row_that_is_plain_means_what_the_readers_make_of_it(number: int) -> None:
    chooser = random.Random(number)
    plan: Plan = ensue.load(
        EVENTS + "query Q { inputs { A() within 9.0; B() within 9.0; } find A as a -> B as b }"
    ).plan()
    plain, seen = PlainRows(plan, STANDARD), 0
    values: dict[str, list[Any]] = {
        "at": [
            1,
            2.5,
            1.0000005,
            "1970-01-01T00:00:03Z",
            "1970-01-01 00:00:03.5+01:00",
            "00:00:01",
            "25:00:00",
            None,
            1e300,
            True,
        ],
        "event": ["A", "B", "B", "A ", "C", None, "A(1)"],
        "id": [1, -(2**63), 1.0, "1", True, None],
        "k": ["x", "", " y ", "ü", "\ud800", 5, None],
        "v": [0.5, -0.0, float("nan"), 3, 2**60, "0.5", None],
        "up": [True, False, 1, "true", None],
        "V": [1],
        "other": ["z"],
        "ts": [1],
        "source": ["s"],
    }
    for _ in range(400):
        row = {name: chosen[0] if chooser.random() < 0.7 else chooser.choice(chosen) for name, chosen in values.items()}
        for name in ("V", "other", "ts", "source", "up", "v"):
            if chooser.random() < (0.9 if name in ("V", "ts", "source") else 0.1):
                del row[name]
        event = plain.event_of(row, ())
        if event is None:
            continue
        seen += 1
        record = read_following([row], plan, STANDARD, "rows", 1, NO_TIME).arrivals.table.to_pylist()[0]
        assert record["_kind"] == plan.events.index(event.type)
        assert record["_arrival"] == event.arrival
        given = {field.name: record[column_name(field.name, field.type)] for field in event.type.fields}
        assert pa.array([event.values]).equals(pa.array([given])) or "nan" in str(given)  # noqa: PD011  no table
    assert seen > 20

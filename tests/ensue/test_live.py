"""`ensue.open`: rows bit by bit give what a replay of all gives, wherever they are cut and saved."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import ensue
import querylang
from ensue.live.state import SavedLive, identity_of
from runtime.timestamps import parse_time
from tests.support.answers import facts

EVENTS = """
@TimeFrom("getTime") @OutOfOrder()
event A { integer id; string k; float v; float s; action getTime() returns float { return s; } }
@TimeFrom("getTime") @OutOfOrder()
event B { integer id; string k; float v; float s; action getTime() returns float { return s; } }
"""
INPUTS = "inputs { A() key k within 9.0 wait 2.0; B() key k within 9.0 wait 2.0; }"
QUERIES = f"""{EVENTS}
query Rise {{ {INPUTS} find A as a -> B as b where b.v > a.v {{ print a.k + b.id.toString(); }} }}
query Mean {{ {INPUTS} find every A as a select mean(a.v) as m having m > 0.5 }}
query Silence {{ inputs {{ A() key k within 9.0; B() key k within 9.0; }} find A as a -> wait(1.5) as t }}
query Any {{ inputs {{ A(v > 0.3) within 4.0; B() within 4.0; }} find A as a or (B as b -> A as c) }}
"""
LEEWAY = "com.apama.queries.SetDelayedEventsLeeway(6.0, 1.0)"


def stream(chooser: random.Random, count: int) -> list[dict[str, Any]]:
    """Rows in order of arrival: late ones, ties, ticks, control events, and some that are wrong."""
    rows: list[dict[str, Any]] = []
    at = 100.0
    for number in range(count):
        at += chooser.choice([0.0, 0.0, 0.5, 1.0, 3.0])
        row: dict[str, Any] = {"at": at, "event": chooser.choice("AAAABBBB"), "id": number}
        row |= {"k": chooser.choice(["x", "y", "z", None]), "v": round(chooser.random(), 3)}
        row |= {"s": at - chooser.choice([0.0, 0.0, 1.0, 2.0, 5.0])}
        match chooser.randrange(30):
            case 0:
                row = {"at": at, "event": None}
            case 1:
                row = {"at": at, "event": chooser.choice([LEEWAY, f'Heartbeat("A", {at})'])}
            case 2:
                row["event"] = "C"
            case 3:
                row["v"] = "wrong"
            case 4:
                row["at"] = "never"
        rows.append(row)
    return [{"at": 99.0, "event": "A", "id": -1, "k": "x", "v": 0.5, "s": 99.0}, *rows]


def as_given(chooser: random.Random, rows: list[dict[str, Any]]) -> Any:
    """Rows as users have them."""
    if len(rows) == 1 and chooser.random() < 0.5:
        return rows[0]
    wrong = any(isinstance(row["at"], str) or isinstance(row.get("v"), str) for row in rows)
    if wrong or chooser.random() < 0.6:
        return rows
    names = dict.fromkeys(name for row in [{"id": 0, "k": "", "v": 0.0, "s": 0.0}, *rows] for name in row)
    types = {"at": pa.float64(), "event": pa.string(), "id": pa.int64(), "k": pa.string()}
    table = pa.table({name: pa.array([row.get(name) for row in rows], types.get(name, pa.float64())) for name in names})
    return table if chooser.random() < 0.5 else table.to_pandas().convert_dtypes()


@pytest.mark.parametrize("number", range(8))
def test_any_cut_with_saves_gives_the_answer_of_a_replay(number: int, tmp_path: Path) -> None:
    chooser = random.Random(number)
    rows = stream(chooser, 120)
    expected = facts([ensue.replay(QUERIES, rows)])
    live, answers, state = ensue.open(QUERIES), [], tmp_path / "live.state"
    given = 0
    while given < len(rows):
        size = chooser.choice([1, 1, 1, 2, 7, 30])
        answers.append(live.send(as_given(chooser, rows[given : given + size])))
        given += size
        following = [row["at"] for row in rows[given:] if isinstance(row["at"], float)]
        if following and chooser.random() < 0.2:
            reached = parse_time(live.clock.isoformat()) / 1e6 if live.clock else 0.0
            answers.append(live.advance(chooser.uniform(reached, max(reached, following[0]))))
        if chooser.random() < 0.3:
            len(answers[-1])  # looks at it
        if chooser.random() < 0.1:
            live.save(state)
            live = ensue.open(QUERIES, state=state)
    answers.append(live.flush())
    assert len(expected["matches"]) > 20
    assert facts(answers) == expected


def test_rows_before_the_clock_are_taken_at_the_clock(caplog: pytest.LogCaptureFixture) -> None:
    text = "event A { integer n; }\ninputs { A() within 9.0; } find A as a -> A as b"
    for looks in (False, True):
        caplog.clear()
        live = ensue.open(text)
        answers = []
        for at, n in ((10, 1), (12, 2), (11, 3), (13, 4)):
            answers.append(live.send({"at": at, "n": n}))
            if looks:
                len(answers[-1])
        found = [(match["a"]["row"], match["time"][17:19]) for a in answers for match in _members(a)]
        assert found == [(1, "12"), (2, "12"), (3, "13")]
        account = answers[-1].ledger.set_index("what")["count"].to_dict()
        assert account == {"received": 4, "used": 4, "before_clock": 1}
        assert [record.message for record in caplog.records] == [
            "rows arrive before the clock, which earlier rows have advanced: they are taken at the clock"
        ]


def _members(answer: ensue.Answer) -> list[dict[str, Any]]:
    return [{"time": match["time"], **match["members"]} for match in answer.match_objects()]


ONE = "event A { integer n; }\nquery Q { inputs { A() within 9.0; } find A as a -> A as b }\n"


def test_a_failed_call_changes_nothing(tmp_path: Path) -> None:
    live = ensue.open(ONE)
    live.send({"at": 1, "n": 1})
    live.save(tmp_path / "before")
    for wrong in (pd.DataFrame({"at": [2], "n": ["x"]}).convert_dtypes(), "nothing.csv", 7):
        with pytest.raises(ensue.InputError):
            live.send(wrong)
    live.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()
    assert len(live.send({"at": 2, "n": 2})) == 1


def test_a_row_may_be_changed_after_it_was_sent() -> None:
    live, row = ensue.open(ONE), {"at": 1, "n": 1}
    answers = []
    for n in range(1, 5):
        row |= {"at": n, "n": n}
        answers.append(live.send(row))
    assert [answer.matches["a.n"].tolist() for answer in answers] == [[], [1], [2], [3]]


def test_time_does_not_go_back() -> None:
    live = ensue.open(ONE)
    live.send({"at": 10, "n": 1})
    with pytest.raises(ensue.InputError, match="time does not go back: the clock is at 1970-01-01T00:00:10"):
        live.advance(9)
    assert live.clock == datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC)
    live.advance(datetime(1970, 1, 1, 0, 0, 11, tzinfo=UTC))
    assert str(live.clock) == "1970-01-01 00:00:11+00:00"


def test_next_due_tells_when_to_advance() -> None:
    live = ensue.open("event A { integer n; }\ninputs { A() within 9.0; } find A as a -> wait(2.0)")
    assert live.next_due is None
    live.send({"at": 10, "n": 1})
    assert str(live.next_due) == "1970-01-01 00:00:12+00:00"
    assert len(live.advance("1970-01-01T00:00:12Z")) == 1


def test_nothing_is_sent_after_the_end() -> None:
    live = ensue.open(ONE)
    assert len(live.send([{"at": 1, "n": 1}, {"at": 2, "n": 2}])) == 1
    live.flush()
    with pytest.raises(ensue.InputError, match="the input has ended"):
        live.send({"at": 3, "n": 3})


def test_first_rows_decide_open_types(tmp_path: Path) -> None:
    text = "inputs { A() within 9.0; } find A as a -> A as b where b.v > a.v"
    live = ensue.open(text)
    live.save(tmp_path / "empty")
    assert len(ensue.open(text, state=tmp_path / "empty").send([{"at": 1, "v": 1.0}, {"at": 2, "v": 2.0}])) == 1
    live.send({"at": 1, "v": 20})
    live.save(tmp_path / "begun")
    for other in (live, ensue.open(text, state=tmp_path / "begun")):
        with pytest.raises(ensue.InputError, match="is float here and was integer in the first rows; define it: "):
            other.send({"at": 2, "v": 20.5})
        assert len(other.send({"at": 2, "v": 21})) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "is damaged: its checksum does not fit"),
        (lambda data: data[:50], "is damaged: its checksum does not fit"),
        (lambda _data: b"", "not a live value of this release of Ensue"),
        (lambda _data: b"event A { }", "not a live value of this release of Ensue"),
    ],
)
def test_a_damaged_state_is_refused(tmp_path: Path, change: Any, told: str) -> None:
    live, state = ensue.open(ONE), tmp_path / "live.state"
    live.send({"at": 1, "n": 1})
    live.save(state)
    state.write_bytes(change(state.read_bytes()))
    with pytest.raises(ensue.InputError, match=f"live.state: .*{told}") as error:
        ensue.open(ONE, state=state)
    assert "\n" not in str(error.value)


def test_a_state_of_other_queries_is_refused(tmp_path: Path) -> None:
    live, state = ensue.open(ONE), tmp_path / "live.state"
    live.send({"at": 1, "n": 1})
    live.save(state)
    with pytest.raises(ensue.InputError, match="of other queries: without R and with Q; open them"):
        ensue.open(ONE.replace("query Q", "query R"), state=state)
    with pytest.raises(ensue.InputError, match="of other queries: with other conditions"):
        ensue.open(ONE.replace("9.0", "8.0"), state=state)
    with pytest.raises(ensue.InputError, match="no such file; leave `state` out"):
        ensue.open(ONE, state=tmp_path / "other")
    assert len(ensue.open(f"// a remark\n{ONE}", state=state).send({"at": 2, "n": 2})) == 1


def test_a_state_that_somebody_else_has_saved_is_not_lost(tmp_path: Path) -> None:
    state = tmp_path / "live.state"
    ensue.open(ONE).save(state)
    first, second = (ensue.open(ONE, state=state) for _ in range(2))
    first.send({"at": 1, "n": 1})
    first.save(state)
    first.save(state)
    with pytest.raises(ensue.InputError, match="somebody else has saved"):
        second.save(state)
    second.save(state, overwrite=True)
    query = tmp_path / "q.query"
    query.write_text(ONE)
    with pytest.raises(ensue.InputError, match="is not the state of open queries"):
        second.save(query, overwrite=True)
    with pytest.raises(ensue.InputError, match="no/state: cannot be written"):
        second.save(tmp_path / "no" / "state")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["live.state", "q.query"]


def test_whole_numbers_may_follow_fractions_where_nothing_is_defined() -> None:
    live = ensue.open("query Q { inputs { A() retain 1; } find A as a }")
    assert [live.send([{"at": at, "v": v}]).matches["a.v"].tolist() for at, v in ((1, 20.5), (2, 20))] == [
        [20.5],
        [20.0],
    ]


def test_a_state_keeps_the_rule_for_nulls_that_it_was_saved_with(tmp_path: Path) -> None:
    text = """event A { integer v; integer w; }
    query Q { inputs { A() within 9.0; } find A as a -> A as b where a.v = 1 or b.w = 1 }"""
    live = ensue.open(text)
    assert len(live.send([{"at": 1, "v": None, "w": 1}, {"at": 2, "v": None, "w": 1}])) == 1
    live.save(tmp_path / "new")
    # A state of an earlier version has the plan of these queries by the earlier rule.
    saved = SavedLive.from_bytes((tmp_path / "new").read_bytes())
    earlier, _ = identity_of(querylang.compile_text(text).plan.with_failing_nulls())
    (tmp_path / "old").write_bytes(replace(saved, plan=earlier).to_bytes())
    for name, count in (("new", 1), ("old", 0)):
        assert len(ensue.open(text, state=tmp_path / name).send({"at": 3, "v": None, "w": 1})) == count

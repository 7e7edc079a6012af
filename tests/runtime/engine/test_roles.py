"""One type as several inputs, by their roles: plans, states, the ledger, rows of discarded records."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import ensue
from querylang import compile_text
from querylang.plan.model import Plan, from_dict, to_dict
from runtime.columns.arrivals import Arrivals
from runtime.columns.keys import bucket_of
from runtime.engine.division import divided_snapshot, united_snapshot
from runtime.engine.engine import Engine
from runtime.engine.snapshot import StateError
from runtime.matching.choose import slow_queries
from runtime.reading.tables import read_arrivals
from runtime.results.schemas import Results

EVENT = "event P { integer pid; integer ppid; integer v; }\n"
PARENT, CHILD = "P({}) as parent key pid as k within 60.0{};", "P({}) as child key ppid as k within 60.0{};"


def text_of(find: str, parent: str = PARENT, child: str = CHILD, *, wait: str = "") -> str:
    return f"{EVENT}query Q {{ inputs {{ {parent.format('', wait)} {child.format('', wait)} }} {find} }}"


PAIR = text_of("find parent as a -> child as b")


def row(at: float, pid: int | None, ppid: int | None, ts: float | None = None, v: int = 0) -> dict[str, Any]:
    return {"at": at, "ts": at if ts is None else ts, "event": "P", "pid": pid, "ppid": ppid, "v": v}


def pairs(result: Any) -> list[tuple[int, int]]:
    return [(one["a.row"], one["b.row"]) for one in result.matches.to_dict("records")]


def counts(result: Any) -> dict[str, int]:
    found = Counter[str]()
    for one in result.ledger.to_dict("records"):
        found[one["what"]] += one["count"]
    return {word: count for word, count in found.items() if count}


def test_a_plan_with_roles_has_a_version_of_its_own_and_is_read() -> None:
    plan = compile_text(PAIR).plan
    assert (to_dict(plan)["version"], from_dict(to_dict(plan))) == (10, plan)
    plain = compile_text(f"{EVENT}query Q {{ inputs {{ P() within 1.0; }} find P as a }}").plan
    assert "role" not in str(to_dict(plain))


def test_a_record_is_one_record_of_the_ledger_whatever_its_roles() -> None:
    result = ensue.replay(PAIR, [row(1, 10, 1), row(2, 11, 10), row(3, None, 11), row(4, None, None)])
    assert pairs(result) == [(1, 2), (2, 3)]
    assert counts(result) == {"received": 4, "used": 3, "null_key": 1}
    assert result.discarded[["event", "reason", "offset"]].to_numpy().tolist() == [["P", "null_key", 4]]


def test_a_record_that_is_its_own_parent_is_no_pair() -> None:
    assert pairs(ensue.replay(PAIR, [row(1, 5, 5), row(2, 5, 5)])) == [(1, 2)]


def test_a_refusal_in_one_role_is_a_row_and_counts_beside_the_sum() -> None:
    child = CHILD.format("", " wait 1.0")
    text = text_of("find parent as a -> child as b", PARENT.format("", " wait 30.0"), child)
    result = ensue.replay(text, [row(100, 1, 2), row(110, 2, 1, ts=105)])
    assert counts(result) == {"received": 2, "used": 2, "role_discarded": 1}
    assert result.discarded[["event", "reason", "offset"]].to_numpy().tolist() == [["P as child", "late", 2]]


def test_a_record_is_pending_until_one_role_has_used_it() -> None:
    plan = compile_text(text_of("find parent as a -> child as b", wait=" wait 10.0")).plan
    arrivals = read_arrivals([row(100, 1, 2), row(101, 3, 4), row(102, None, 5)], plan)
    engine = Engine(plan)
    engine.process(arrivals)
    assert totals(engine) == {"received": 3, "pending": 3}
    engine = restored(plan, engine)
    engine.process(Arrivals.empty(plan), now=111_000_000)
    assert totals(engine) == {"pending": -2, "used": 2}
    engine.flush()
    assert totals(engine) == {"pending": -3, "used": 3}


def restored(plan: Plan, engine: Engine) -> Engine:
    return Engine.restore(plan, engine.snapshot())


def totals(engine: Engine) -> dict[str, int]:
    return {word: count for (_, _, word), count in engine.account.items() if count}


def test_pending_records_of_a_query_that_ends_or_of_a_key_that_is_forgotten_are_counted_once() -> None:
    plan = compile_text(text_of("find parent as a -> child as b", wait=" wait 10.0")).plan
    engine = Engine(plan)
    engine.process(read_arrivals([row(100, 1, 2), row(101, 5, 6)], plan))
    after, _ = engine.followed_by(Plan(plan.events, ()), {})
    assert totals(after) == {"received": 2, "undeployed": 2}
    engine = Engine(plan)
    engine.process(read_arrivals([row(100, 1, 2), row(101, 5, 6)], plan))
    engine.forget_key("Q", [pa.scalar(2, pa.int64())])
    assert totals(engine) == {"received": 2, "pending": 2}
    engine.forget_key("Q", [pa.scalar(1, pa.int64())])
    assert totals(engine) == {"received": 2, "pending": 1, "forgotten": 1}


def test_a_state_of_other_roles_is_refused_and_one_of_a_single_role_is_not() -> None:
    plan = compile_text(PAIR).plan
    other = compile_text(PAIR.replace("child", "other")).plan
    with pytest.raises(StateError, match="P as child"):
        Engine.restore(other, Engine(plan).snapshot())
    single = f"{EVENT}query Q {{ inputs {{ P() key pid within 60.0; }} find P as a -> P as b }}"
    named = single.replace("P() key", "P() as p key").replace("find P as a -> P as b", "find p as a -> p as b")
    first, second = compile_text(single).plan, compile_text(named).plan
    engine = Engine(first)
    engine.process(read_arrivals([row(1, 7, 1)], first))
    again = Engine.restore(second, engine.snapshot())
    assert len(again.process(read_arrivals([row(2, 7, 1)], second)).matches["Q"]) == 1


def test_states_of_roles_with_one_key_are_divided_and_united() -> None:
    child = "P({}) as child key pid as k within 60.0{};"
    plan = compile_text(text_of("find all parent as a -> child as b", child=child, wait=" wait 10.0")).plan
    given = [row(100 + number, number % 5, number) for number in range(20)]
    first, rest = (read_arrivals(part, plan) for part in (given[:12], given[12:]))
    engine, account = Engine(plan), Counter[tuple[str, str, str]]()
    found = matches_of(engine.process(first))
    account.update(engine.account)
    parts, buckets = divided_snapshot(plan, engine.snapshot(), 3, None), bucket_of(rest, plan, plan.queries[0], 3)
    for number, part in enumerate(parts):
        own = Engine.restore(plan, part)
        found += matches_of(own.process(rest.take((buckets == number).nonzero()[0])))
        account.update(own.account)
        parts[number] = own.snapshot()
    last = Engine.restore(plan, united_snapshot(plan, parts))
    found += matches_of(last.flush())
    account.update(last.account)
    whole = Engine(plan)
    expected = matches_of(whole.process(read_arrivals(given, plan))) + matches_of(whole.flush())
    assert sorted(found) == sorted(expected) != []
    assert {word: count for (_, _, word), count in account.items() if count} == {"received": 20, "used": 20}


def matches_of(results: Results) -> list[str]:
    table = results.matches["Q"].to_pylist() if "Q" in results.matches else []
    return [str({name: member["fields"] for name, member in one["members"].items()}) for one in table]


def test_a_null_key_is_not_the_field_of_another_type() -> None:
    text = """event A { integer x; integer y; } event B { integer x; integer y; }
query Q { inputs { A() key x as k within 9.0; B() key y as k within 9.0; } find A as a or B as b; }"""
    result = ensue.replay(text, [{"at": 1, "event": "A", "x": None, "y": 3}, {"at": 2, "event": "B", "x": 1, "y": 3}])
    assert counts(result) == {"received": 2, "null_key": 1, "used": 1}
    alone = ensue.replay(text, [{"at": 1, "event": "A", "x": None, "y": 3}])
    assert counts(alone) == {"received": 1, "null_key": 1}


def test_a_routed_event_counts_for_each_role() -> None:
    text = f"""{EVENT} event Start {{ integer pid; integer ppid; }}
query Feed {{ inputs {{ Start() within 60.0; }} find Start as s {{ route P(s.pid, s.ppid, 1); }} }}
query Q {{ inputs {{ {PARENT.format("", "")} {CHILD.format("", "")} }} find parent as a -> child as b; }}"""
    given = [
        {"at": at, "event": "Start", "pid": pid, "ppid": ppid} for at, pid, ppid in ((1, 1, 0), (2, 2, 1), (3, 3, 2))
    ]
    matches = ensue.replay(text, given).matches_of("Q")
    assert matches[["a.pid", "b.pid"]].to_numpy().tolist() == [[1, 2], [2, 3]]


def test_open_queries_give_what_a_replay_gives() -> None:
    given = [row(1, 10, 1), row(2, 11, 10), row(3, 12, 10), row(4, 12, 12)]
    live, found = ensue.open(PAIR), list[tuple[int, int]]()
    for one in given:
        found += [(match["a.pid"], match["b.pid"]) for match in live.send([one]).matches.to_dict("records")]
    expected = ensue.replay(PAIR, given).matches.to_dict("records")
    assert found == [(match["a.pid"], match["b.pid"]) for match in expected] != []


@pytest.mark.parametrize(
    ("filters", "is_slow"),
    [(("", ""), True), (("v = 1", "v > 1"), True), (("v = 1", "v = 2"), False), (("v = 1", "v in [1, 2]"), True)],
)
def test_a_query_whose_events_may_serve_two_roles_of_a_key_is_said_to_be_slow(
    filters: tuple[str, str], is_slow: bool
) -> None:
    one, other = (f"P({filter_}) as {role} key pid within 60.0;" for filter_, role in zip(filters, "ab", strict=True))
    plan = compile_text(f"{EVENT}query Q {{ inputs {{ {one} {other} }} find a as x and b as y }}").plan
    lines = slow_queries(plan)
    assert [("'a' and 'b' of a key" in line) for line in lines] == [True] * is_slow


@pytest.mark.parametrize("keys", [("pid", "ppid"), ("pid", "pid")])
def test_a_query_whose_steps_take_an_event_in_one_way_each_is_not(keys: tuple[str, str]) -> None:
    one, other = (f"P() as {role} key {key} as k within 60.0;" for role, key in zip("ab", keys, strict=True))
    text = f"{EVENT}query Q {{ inputs {{ {one} {other} }} find a as x -> b as y }}"
    assert slow_queries(compile_text(text).plan) == []


def test_a_wait_behind_an_event_of_two_roles_is_saved_and_restored() -> None:
    inputs = "P() as b key pid within 60.0; P() as a key pid within 60.0;"
    plan = compile_text(f"{EVENT}query Q {{ inputs {{ {inputs} }} find b as x -> wait(5.0) as t }}").plan
    arrivals = read_arrivals([row(1, 7, 1), row(9, 7, 1)], plan)
    whole, cut = Engine(plan), Engine(plan)
    cut.process(Arrivals(arrivals.table.slice(0, 1)))
    cut = Engine.restore(plan, cut.snapshot())
    found, expected = cut.process(Arrivals(arrivals.table.slice(1))), whole.process(arrivals)
    names = ["match_id", "time", "emitted", "members"]
    rows = [results.matches["Q"].select(names).to_pylist() for results in (found, expected)]
    assert rows[0] == rows[1] != []

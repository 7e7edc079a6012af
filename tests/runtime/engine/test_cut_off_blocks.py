"""Blocks that reach a limit again and again are not run any more, at the same match for every cut."""

from __future__ import annotations

import json
import random
from collections import defaultdict

import pytest

from querylang import compile_text
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.replay.replay import read_records
from runtime.results.outputs import MOST_CUT_OFF
from runtime.results.schemas import Results

TEXT = """
event A { string k; string does; }
query Q {
    inputs { A() key k retain 1WAIT; }
    find A as a {
        if a.does = "loop" { string s := "x"; while true { s := s + s; } }
        if a.does = "fail" { integer i := 1 / 0; }
        print "ran";
    }
}
"""
LIMIT = "a text or sequence of more than 10,000,000 characters or elements"
FAILED = "integer division by zero"
NOT_RUN = "not run: the last 20 blocks of this key were cut off by a limit"


def records(chooser: random.Random, count: int) -> list[tuple[str, str]]:
    return [(chooser.choice("xyz"), chooser.choices(("loop", "fail", "end"), (40, 1, 1))[0]) for _ in range(count)]


def expected(rows: list[tuple[str, str]]) -> dict[str, list[str]]:
    """By key, the texts of its outputs, in order."""
    texts: dict[str, list[str]] = defaultdict(list)
    in_a_row: dict[str, int] = defaultdict(int)
    for key, does in rows:
        if in_a_row[key] >= MOST_CUT_OFF:
            texts[key].append(NOT_RUN)
        else:
            in_a_row[key] = in_a_row[key] + 1 if does == "loop" else 0
            texts[key].append({"loop": LIMIT, "fail": FAILED, "end": "ran"}[does])
    return texts


def told(plan: Plan, arrivals: Arrivals, cuts: list[int]) -> dict[str, list[str]]:
    """The same by engines that take the stream in pieces, each from the state of the one before."""
    texts: dict[str, list[str]] = defaultdict(list)
    state = None
    for begin, end in zip([0, *cuts], [*cuts, len(arrivals.table)], strict=True):
        engine = Engine(plan) if state is None else Engine.restore(plan, state)
        for results in (
            engine.process(Arrivals(arrivals.table.slice(begin, end - begin))),
            *_rest(engine, end, arrivals),
        ):
            for row in results.outputs.sort_by([("emitted", "ascending"), ("_step", "ascending")]).to_pylist():
                texts[json.loads(row["key"])["k"]].append(row["text"])
        state = engine.snapshot()
    return texts


def _rest(engine: Engine, end: int, arrivals: Arrivals) -> list[Results]:
    return [engine.flush()] if end == len(arrivals.table) else []


@pytest.mark.parametrize("wait", ["", " wait 2.0"])
def test_after_twenty_blocks_in_a_row_a_key_runs_no_more(wait: str) -> None:
    chooser = random.Random(8)
    rows = records(chooser, 150)
    plan = compile_text(TEXT.replace("WAIT", wait)).plan
    table = [{"at": float(at), "event": "A", "k": key, "does": does} for at, (key, does) in enumerate(rows)]
    if wait:
        table = [row | {"ts": row["at"]} for row in table]
    arrivals = read_records([table], plan).arrivals
    wanted = expected(rows)
    assert any(NOT_RUN in texts for texts in wanted.values())
    assert told(plan, arrivals, []) == wanted
    assert told(plan, arrivals, sorted(chooser.sample(range(1, 149), 8))) == wanted


def test_queries_of_a_family_count_for_their_own_keys() -> None:
    chooser = random.Random(9)
    rows = records(chooser, 150)
    event, _, query = TEXT.replace("WAIT", "").partition("\nquery Q ")
    filtered = [
        f"query Q{number} {query.replace('A()', f'A(k = {json.dumps(letter)})')}"
        for number, letter in enumerate("xyzuvw")
    ]
    plan = compile_text("\n".join([event, *filtered])).plan
    table = [{"at": float(at), "event": "A", "k": key, "does": does} for at, (key, does) in enumerate(rows)]
    arrivals = read_records([table], plan).arrivals
    engine = Engine(plan)
    engine.process(Arrivals(arrivals.table.slice(0, 1)))
    assert engine._families is not None
    assert [len(family.members) for family in engine._families.runners] == [6]
    for cuts in ([], [40], [1, 70, 71]):
        assert told(plan, arrivals, cuts) == expected(rows)

"""Books of many queries, whose records an index finds: each query gives what it gives alone."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from job_engine.wire import partition_groups
from querylang import compile_text
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.engine import families, kept_states, looking
from runtime.engine.engine import Engine
from runtime.policies.plan_policies import parse_orderings
from runtime.replay.loading import read_ordered
from runtime.replay.records import Records
from runtime.replay.replay import replay_records
from runtime.results.ledger import Account
from runtime.results.schemas import Results

TYPES = """
{of_a}event A {{ integer x; string s; float f; boolean b; decimal d; optional<integer> o; sequence<integer> l; }}
{of_b}event B {{ integer x; string s; float f; boolean b; }}
event Alive {{ string s; }}
"""

LOOKED_UP = [
    *("x = {n}", "{n} = x", "x in [{n}, {m}]", "x = {n} or x = {m}", "x = {n} or s = {t}", "s = {t} and f > 1.5"),
    *("s = {t}", "s in [{t}, {u}, {t}]", "s.like({w})", 's.matches("{n}|[ab]+")', "s is null", "x is null"),
    *("f > 1.5", "f >= 0.0 and f < 2.0", "f = 0.0", "b", "not b", "x != {n}", "not x = {n}", "x / {n} = 1"),
    *("x + 1 > {n} and s = {t}", "x.toFloat() > f", "x not in [{n}]", "s.length() = 1 and x > {n}", "f = f"),
    *("b = true", "x % 2 = 0 or s = {t}", "x = {n} and x = {m}", 's.toUpper() = "A"', "s < {t}"),
    *("s.length() + x > {n}", "s.toFloat() > f or b", "b or s.toFloat() > f", "s.like({w}) and not b or x = {m}"),
    *("b or s.substring({n}).isEmpty()", "s.substring({n}).isEmpty() or b", "not (s.substring({n}) = {t} and b)"),
]
"""Filters of every kind of lookup; for A also those of fields that only it has."""

OF_A = ["d > 1.0d", "o.getOr(0) = {n}", "o is null", "l.size() > 1 and x = {n}", "l.contains({n})"]

THRESHOLDS = [
    *(
        "e1.f > e0.f + {m}.5",
        "e1.f - {n}.0 >= e0.f",
        "{m}.0 < e1.f - e0.f",
        "e1.f - e0.f <= {m}.0",
        "{n} >= e1.x - e0.x",
    ),
    *("-{m}.5 < e0.f - e1.f", "e1.f > -(e0.f - {m}.0)", "e1.x > e0.x + {n}", "e1.f > e0.f + {m}.0 or e0.x < {n}"),
    *("e1.x - e0.x > {n} and e1.f < e0.f + {m}.0", "not e1.x - e0.x > {n}", "e1.x - e0.x = {n}", "e1.f > e0.f * {n}.0"),
    *("{n} - e1.x > e0.x", "(e1.f >= {m}.0) = (e0.x < {n})", "{m}.0 - e1.f < {n}.0 - e0.f", "e1.f / e0.f > {m}.0"),
]
"""Conditions about two events; in most of them a greater or smaller constant makes it hold less often."""

BEHIND = [
    *(
        ' {{ print e0.s + "{m}"; }}',
        " select e0.x + {n} as more",
        " select e0 as e",
        " at most 1 per {m}.0 by e0.s",
    ),
    " select e0.x / ({n} - 1) as more select e0.s as word at most 2 per 3.0 {{ print more.toString(); }}",
    ' {{ if e0.x > {n} {{ print "x"; }} else {{ integer i := 1 / (e0.x - 1); print i.toString(); }} }}',
]
"""What a query does with its matches; some of it fails."""

WAITS = [
    *(
        "find A as e0 -> wait(1.5) where e0.x > {n} - 2",
        "find A as e0 -> wait(4.0) without B as late where late.x = {n}",
    ),
    "find A as e0 -> B as e1 -> wait(2.5) where e1.x != {n} without A as late where late.f > e0.f + {m}.0",
    "find A as e0 -> wait(1.0) as t {{1,3}} where e0.x != {n} without B as late where late.x + {n} > e0.x",
    "find all A as e0 -> B as e1 -> wait(1.0) where e0.x < {n} + 3",
    'find A as e0 -> A as e1 {{1,2}} -> wait(2.0) where e0.x != {n} without B as late where late.s = "a"',
]
"""Patterns with a wait at the end, of which many match."""

PATTERNS = [
    *(
        "find {p} as a",
        "find {p} as a -> {q} as b",
        "find {p} as a -> {p} as b where b.x >= a.x",
        "find {p} as a => {q} as b",
    ),
    *("find all {p} as a -> {q} as b", "find {p} as a -> wait(2.5)", "find {p} as a -> wait(1.5) without {q} as w"),
    *("find {p} as a -> {q} as b without {p} as w", "find {p} as a or {q} as b", "find {p} as a {{ print a.s; }}"),
    "find every {p} as a select count() as n having count() % 2 = 0",
    "find {p} as a -> {q} as b where a.x = 1 at most 1 per 4.0",
    'find {p} as a where a.s = "a" after match skip past last event',
]

ORDERINGS: list[str] = [
    *("", "", "", "apama leeway=1s reorder=1s", "stream_analytics late=3s out_of_order=1s"),
    *("stream_analytics late=2s out_of_order=2s action=drop", "streaminsight every=2 delay=1s action=adjust"),
]


def filled(chance: random.Random, text: str) -> str:
    """A filter with constants."""
    words = ['"a"', '"b"', '"ab"', '""', '"zz"']
    numbers = {"n": chance.choice([1, 2, 3, -1, 7]), "m": chance.choice([2, 3, 4])}
    return text.format(
        **numbers, t=chance.choice(words), u=chance.choice(words), w=chance.choice(['"a*"', '"?"', '"*b"'])
    )


def an_input(chance: random.Random, event: str, key: str, has_ordering: bool, used: list[str]) -> str:
    """`used`: filters of earlier inputs, which some repeat."""
    if used and chance.random() < 0.3:
        wanted = chance.choice(used)
    elif event == "A" and chance.random() < 0.2:
        wanted = filled(chance, chance.choice(OF_A))
    else:
        wanted = filled(chance, chance.choice(["", "", "", *LOOKED_UP]))
        used.append(wanted)
    window = chance.choice(["within 6.0", "within 3.0", "retain 2", "within 9.0 retain 3"])
    new = chance.choice(["", "", "", " new by x within 3.0"])
    wait = "" if has_ordering else chance.choice(["", "", " wait 1.5", " wait 4.0"])
    return f"{event}({wanted}){key} {window}{new}{wait};"


def a_query(chance: random.Random, name: str, has_ordering: bool, used: list[str]) -> str:
    events, key = (
        chance.choice([["A"], ["A"], ["B"], ["A", "B"], ["B", "A"]]),
        chance.choice(["", "", " key s", " key x"]),
    )
    inputs = " ".join(an_input(chance, event, key, has_ordering, used) for event in events)
    pattern = chance.choice(PATTERNS).format(p=events[0], q=events[-1])
    return f"query {name} {{ inputs {{ {inputs} }} {pattern} }}"


def alike(chance: random.Random, count: int, has_ordering: bool) -> list[str]:
    """Queries with the same inputs, whose conditions say which events serve each name."""
    key, wait = chance.choice(["", " key s", " key x"]), "" if has_ordering else chance.choice(["", " wait 1.5"])
    window = chance.choice(["within 9.0", "within 9.0", "within 4.0", "retain 3"])
    inputs = " ".join(f"{event}(){key} {window}{wait};" for event in "AB")
    found = []
    for number in range(count):
        names = chance.choices("AB", k=chance.choice([1, 2, 2, 3]))
        steps = chance.choice([" -> ", " -> ", " -> ", " -> ", " and ", " or ", " => "])
        pattern = steps.join(f"{event} as e{place}" for place, event in enumerate(names))
        served = [condition(chance, f"e{place}") for place in range(len(names)) if chance.random() < 0.7]
        joined = chance.choice(["", "", "e0.x >= e1.x", "(e0.s = e1.s or e1.b)"]) if len(names) > 1 else ""
        if steps == " or ":  # a condition is about one side
            served, joined = served[:1], ""
        where = f" where {' and '.join(own)}" if (own := [*served, *filter(None, [joined])]) else ""
        last = chance.choice(["", "", "", " within 3.0", " without A as w", f" without B as w where w.x = {number}"])
        found.append(f"query Q{number} {{ inputs {{ {inputs} }} find {pattern}{where}{last} }}")
    return found


def condition(chance: random.Random, name: str) -> str:
    """About one event."""
    forms = [
        "{e}.x = {n}",
        "{e}.s in [{t}, {u}]",
        "{e}.s.like({w})",
        "{e}.f > 1.5",
        "{e}.x = {n} and {e}.b",
        "{e}.s is null",
    ]
    return filled(chance, chance.choice(forms).replace("{e}", name))


def of_one_shape(chance: random.Random, count: int, has_ordering: bool, *, has_equal_inputs: bool) -> list[str]:
    """Queries that differ in constants and, unless their inputs are equal, in what their filters want."""
    key, wait = chance.choice(["", " key s", " key x"]), "" if has_ordering else chance.choice(["", "", " wait 1.5"])
    window = chance.choice(["within 9.0", "within 9.0", "within 4.0", "retain 3", "within 6.0 with unique b"])
    wait = chance.choice(["", "", " new by x within 3.0", " new by s, b within 9.0"]) + wait
    events = chance.choice(["A", "AB"])
    names = chance.choices(events, k=chance.choice([1, 2, 2, 3]))
    steps = chance.choice([" -> ", " -> ", " and ", " => "])
    pattern = steps.join(f"{event} as e{place}" for place, event in enumerate(names))
    conditions = [
        *("{e}.x > {n}", "{e}.x + {n} < 5", "{e}.f >= {m}.5", "{e}.s != {t}", '{e}.s + {t} = "ab"', "{e}.x / {n} = 1"),
        *("{e}.x = 1 or {e}.f > {m}.0", "{e}.s.like({w})", "not {e}.x = {n}", "{n} > {e}.x", "{e}.x - {n} > 0 - {m}"),
    ]
    where = [chance.choice(conditions).replace("{e}", f"e{place}") for place in range(len(names))]
    if len(names) > 1:
        where.append(chance.choice(["e1.x > e0.x + {n}", "e0.f + {m}.5 > e1.f", "e0.b or e1.x = {n}"]))
        if has_equal_inputs:
            where[:2] = [chance.choice(THRESHOLDS)]
    if key and chance.random() < 0.3:
        where.append("{n} <= " + key.split()[-1] if key.endswith("x") else "{t} < s")
    last = chance.choice(["", "", " within 3.0", " without A as w where w.x = {n}", " without A as w"])
    form = f"find {pattern} where {' and '.join(where)}{last}"
    if len(names) == 1 and chance.random() < 0.5:
        form = (
            f"find every {pattern} where {where[0]} select count() as n select max(e0.x) as most having "
            + chance.choice(
                ["count() % 2 = 0", "n >= {n}", "max(e0.x) != {m} and not {n} > n", "max(e0.s) = {t} or most > {n}"]
            )
        )
    if len(names) > 1 and "=>" not in pattern and chance.random() < 0.3:
        form = form.replace("find ", "find all ", 1)
    elif len(names) > 1 and has_equal_inputs and chance.random() < 0.3:
        form = (
            form.replace("find ", "find every ", 1)
            + " select count() as n select last(e0.f) as f having count() > {n} - 2"
        )
    elif "every" not in form and chance.random() < 0.3:
        ended = chance.choice(["", " without A as late", " without A as late where late.x = {n}"])
        form = form.replace(" where ", f" -> wait({chance.choice([1.5, 4.0])}) where ", 1) + ended * (
            "without" not in form
        )
    if "every" not in form:
        behind = chance.choice(BEHIND) if chance.random() < 0.5 else ""
        if not any(word in form + behind for word in ("find all", "wait(", "at most", "{{")) and chance.random() < 0.4:
            behind += " after match skip " + chance.choice(["past last event", "past last event", "to last e0"])
        form += behind
    wanted = {event: filled(chance, chance.choice(["", "", *LOOKED_UP])) for event in events}
    found = []
    for number in range(count):
        own = filled(chance, form)
        if not has_equal_inputs:
            wanted = {event: filled(chance, chance.choice(["", *LOOKED_UP])) for event in events}
        inputs = " ".join(f"{event}({wanted[event]}){key} {window}{wait};" for event in events)
        said = chance.choice(["", "", f'metadata {{ "severity": "{number}" }}', f'metadata {{ "note": "{number}" }}'])
        found.append(f"query Q{number} {{ {said} inputs {{ {inputs} }} {own} }}")
    return found


def with_waits(chance: random.Random, count: int, has_ordering: bool) -> list[str]:
    """Queries of one shape with a wait at the end, which differ in constants and filters."""
    key, wait = chance.choice(["", " key s", " key x"]), "" if has_ordering else chance.choice(["", "", " wait 1.5"])
    form = chance.choice(WAITS) + (chance.choice(BEHIND) if chance.random() < 0.5 else "")
    found = []
    for number in range(count):
        wanted = [filled(chance, chance.choice(["", "b", "x != {n}", "x in [{n}, {m}]"])) for _ in "AB"]
        inputs = " ".join(f"{event}({own}){key} within 9.0{wait};" for event, own in zip("AB", wanted, strict=True))
        found.append(f"query Q{number} {{ inputs {{ {inputs} }} {filled(chance, form)} }}")
    return found


def book(chance: random.Random, count: int, has_ordering: bool, shape: str = "") -> str:
    """`shape`: "filters", "thresholds" or "waits" if the queries have one shape, and differ in constants."""
    if shape == "waits":
        return TYPES.format(of_a="", of_b="") + "\n".join(with_waits(chance, count, has_ordering))
    if shape:
        kind = "" if has_ordering else chance.choice(["", "", "@OutOfOrder() "])
        queries = of_one_shape(chance, count, has_ordering, has_equal_inputs=shape == "thresholds")
        return TYPES.format(of_a=kind, of_b="") + "\n".join(queries)
    if chance.random() < 0.4:
        return TYPES.format(of_a="", of_b="") + "\n".join(alike(chance, count, has_ordering))
    used: list[str] = []
    own = [] if has_ordering else ["", "", "@OutOfOrder() ", '@TimeFrom("f") ']
    head = TYPES.format(of_a=chance.choice(own or [""]), of_b=chance.choice(own or [""]))
    return head + "\n".join(a_query(chance, f"Q{number}", has_ordering, used) for number in range(count))


def rows(chance: random.Random, count: int, has_controls: bool) -> list[dict[str, Any]]:
    at, found = 0.0, []
    for _ in range(count):
        at += chance.choice([0, 0, 0.5, 1, 1, 2, 5])
        row: dict[str, Any] = {"at": at, "event": chance.choice(["A", "A", "B", "B", "Alive", "Other"])}
        if has_controls and chance.random() < 0.1:
            moment = max(0.0, at - chance.choice([0, 1, 3]))
            control = [f'Heartbeat("A", {moment})', "com.apama.queries.SetDelayedEventsLeeway(1.0, 1.0)", "Wrong()"]
            row["event"] = chance.choice(control)
        row |= {"x": chance.choice([None, 1, 2, 3, 7]), "s": chance.choice([None, "a", "b", "ab", "", "zz"])}
        row |= {"f": max(0.0, at - chance.choice([0, 0, 1, 2, 4])), "ts": max(0.0, at - chance.choice([0, 0, 1, 3]))}
        row |= {"b": chance.choice([True, False, None]), "d": "1.5", "o": chance.choice([None, 1, 3]), "l": [1, 2]}
        found.append(row)
    return found


def pieces(chance: random.Random, table: pa.Table) -> list[tuple[pa.Table, int | None, bool]]:
    """Parts of a table, how far the clock goes behind each, and whether the state is saved there.

    Those of a long table are longer: each call of an engine takes as long as dozens of records.
    """
    found, at = [], 0
    sizes = [1, 2, 5, 20] if len(table) <= 40 else [1, 5, 20, 40]
    while at < len(table):
        size = chance.choice(sizes)
        part = table.slice(at, size)
        last = int(part.column("_arrival")[-1].as_py())
        found.append((part, chance.choice([None, last, last + 300_000]), chance.random() < 0.2))
        at += size
    return found


def outcome(
    plan: Plan, cuts: list[tuple[pa.Table, int | None, bool]]
) -> dict[str, tuple[list[Any], Account, dict[str, int] | None]]:
    """By query what it gave, in order, its counts, and how much was kept of it where its state was saved last.

    `_rank` orders matches of a step, and is the place of an event among those that are stored: expired ones may be, too.
    """
    engine, account = Engine(plan), Counter[tuple[str, str, str]]()
    given: dict[str, list[Any]] = {query.title: [] for query in plan.queries}
    sizes: dict[str, dict[str, int]] = {}

    def add(results: Results) -> None:
        for title, own in given.items():
            own.extend(_rows_of(results.matches.get(title)))
        for table in (results.outputs, results.discarded):
            for row in [] if table is None else table.to_pylist():
                given.get(row["query"], []).append(_without_rank(row))
        for row in results.ledger.to_pylist():
            account[row["query"], row["source"], row["what"]] += row["count"]

    for table, now, is_saved in cuts:
        add(engine.process(Arrivals(table), now=now))
        if now is None:
            measured = engine.retained(), engine.keys(), engine.least_definitive()
        if is_saved:
            sizes = engine.sizes()
            if now is None:
                assert measured == measured_one_by_one(engine)
            engine = Engine.restore(plan, engine.snapshot())
    add(engine.flush())
    engine.retained()
    return {
        title: (
            own,
            Counter({key: count for key, count in account.items() if key[0] == title and count}),
            sizes.get(title),
        )
        for title, own in given.items()
    }


def measured_one_by_one(engine: Engine) -> tuple[int, int, dict[str, int | None]]:
    """What is kept, how many keys, and by query the least definitive time; no query has a family afterwards."""
    engine._load_cold()
    keys = sum(state.keys.keys() for state in engine._states)
    queries = engine.plan.queries
    return (
        engine.stored_events(),
        keys,
        {query.title: engine.definitive(query.title, (None,) * len(query.keys)) for query in queries},
    )


def _rows_of(matches: pa.Table | None) -> list[dict[str, Any]]:
    return [] if matches is None else matches.drop_columns("_rank").to_pylist()


def _without_rank(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "_rank"}


def check(seed: int, count: int, shape: str = "") -> int:
    """Compares; gives how many rows queries gave; `shape`: as of `book`."""
    chance = random.Random(seed)
    ordering = chance.choice(ORDERINGS)
    text = book(chance, count, bool(ordering), shape)
    plan = compile_text(text).plan
    count_of_rows = chance.choice([80, 120] if shape in ("thresholds", "waits") else [8, 20, 40])
    data = rows(chance, count_of_rows, chance.random() < 0.4)
    plan, records = read_ordered([data], plan, None, parse_orderings(ordering) if ordering else {})
    assert isinstance(records, Records)
    cuts = pieces(chance, records.arrivals.table)
    if chance.random() < 0.3:
        cuts = [(pa.concat_tables([table for table, _, _ in cuts]).unify_dictionaries(), None, False)]
    together, at_once = outcome(plan, cuts), replay_records(plan, records).matches
    for query in plan.queries:
        own = replace(plan, queries=(query,))
        alone = outcome(own, cuts)
        one, other = (found[query.title] for found in (together, alone))
        assert one[:2] == other[:2], f"seed {seed}, {query.title}\n{text}"
        if shape:
            found = (at_once, replay_records(own, records).matches)
            first, second = (_rows_of(tables.get(query.title)) for tables in found)
            # queries of other books may share what they store, and store what any of them needs
            assert (first, one[2]) == (second, other[2]), f"seed {seed}, {query.title}\n{text}"
    return sum(len(own) for own, *_ in together.values())


@pytest.mark.parametrize("seed", range(60))
def test_queries_of_a_book_give_what_each_gives_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "FEWEST", random.Random(seed).choice([1, 2, 4]))
    check(seed, random.Random(seed).choice([2, 5, 6, 9, 15]))


@pytest.mark.parametrize("seed", range(40))
def test_queries_of_one_shape_give_what_each_gives_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "FEWEST", 2)
    check(seed, random.Random(seed).choice([5, 6, 9, 15]), "filters")


@pytest.mark.parametrize("seed", range(40))
def test_queries_with_waits_give_what_each_gives_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "FEWEST", 2)
    check(seed, random.Random(seed).choice([5, 6, 9]), "waits")


@pytest.mark.parametrize("seed", range(40))
def test_queries_that_differ_in_thresholds_give_what_each_gives_alone(seed: int) -> None:
    check(seed, random.Random(seed).choice([2, 5, 9, 15]), "thresholds")


@pytest.mark.parametrize(
    "form", ["A(x = {n}) within 9.0 wait 1.5; }} find A as a", "A(x = {n}) within 9.0; }} find A as a -> wait(1.5)"]
)
def test_timers_that_a_control_event_finds_expired_are_run_in_its_call(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families, "FEWEST", 2)
    queries = [f"query Q{number} {{{{ inputs {{{{ {form} }}}}".format(n=number) for number in range(6)]
    plan = compile_text("\n".join(["event A { integer x; }", "event B { integer x; }", *queries])).plan
    data = [
        {"at": 0.0, "event": "A", "x": 1, "ts": 0.0},
        {"at": 1.0, "event": "B", "x": 1, "ts": 1.0},
        {"at": 5.0, "event": "com.apama.queries.SetDelayedEventsLeeway(1.0, 1.0)"},
    ]
    plan, records = read_ordered([data], plan, None, {})
    assert isinstance(records, Records)
    table = records.arrivals.table
    cuts: list[tuple[pa.Table, int | None, bool]] = [
        (table.slice(number, 1), None, False) for number in range(len(table))
    ]
    given = outcome(plan, cuts)
    assert [len(own) for own, *_ in given.values()] == [0, 1, 0, 0, 0, 0]
    assert given == outcome(plan, [(table, None, False)])


def changing(
    plan: Plan, cuts: list[tuple[pa.Table, int | None, bool]], chance: random.Random, *, has_one_shape: bool
) -> list[object]:
    """What the queries of a plan give while some of them come and go; of one shape some take over another's state."""
    titles = [query.title for query in plan.queries]
    engine, given = Engine(replace(plan, queries=plan.queries[: len(titles) // 2 + 2])), list[object]()
    for table, now, is_saved in cuts:
        results = engine.process(Arrivals(table), now=now)
        given.append({title: _rows_of(own) for title, own in results.matches.items()})
        given += [results.ledger.to_pylist(), [_without_rank(row) for row in results.outputs.to_pylist()]]
        if is_saved:
            given.append(engine.sizes() if chance.random() < 0.5 else len(engine.snapshot()) and engine.stored_events())
        if chance.random() < 0.7:
            running = chance.sample(plan.queries, chance.randint(len(titles) // 2, len(titles)))
            own, others = chance.sample(titles, 2)
            heirs = {own: others} if has_one_shape and chance.random() < 0.3 else {}
            engine, ended = engine.followed_by(replace(plan, queries=tuple(running)), heirs)
            given.append(sorted(ended.to_pylist(), key=str))
    return [*given, engine.flush().ledger.to_pylist(), engine.retained()]


@pytest.mark.parametrize("seed", range(40))
def test_queries_that_come_and_go_leave_the_others_as_they_are(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "FEWEST", 2)
    chance = random.Random(seed)
    shape = chance.choice(["filters", "filters", "thresholds", "waits", ""])
    text = book(chance, chance.choice([6, 9, 15]), False, shape)
    plan = compile_text(text).plan
    plan, records = read_ordered([rows(chance, 60, chance.random() < 0.3)], plan, None, {})
    assert isinstance(records, Records)
    cuts = pieces(chance, records.arrivals.table)
    found = changing(plan, cuts, random.Random(seed), has_one_shape=bool(shape))
    monkeypatch.setattr(kept_states, "untouched", lambda *_: {})
    again = changing(plan, cuts, random.Random(seed), has_one_shape=bool(shape))
    assert found == again, f"seed {seed}\n{text}"


def test_a_family_stays_when_a_query_ends_or_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = [
        f"query Q{n} {{ inputs {{ A(x = {n}) key s within 9.0; }} find A as a -> A as b where b.f > {n}.0 }}"
        for n in range(8)
    ]
    plan = compile_text(TYPES.format(of_a="", of_b="") + "\n".join(queries)).plan
    data = [
        {"at": float(n), "event": "A", "x": n % 8, "s": "a", "f": 9.0, "b": None, "d": None, "o": None, "l": None}
        for n in range(64)
    ]
    plan, records = read_ordered([data], plan, None, {})
    assert isinstance(records, Records)
    table, parted = records.arrivals.table, list[int]()
    engine = Engine(replace(plan, queries=plan.queries[:7]))
    engine.process(Arrivals(table.slice(0, 32)))
    give = families.FamilyRunner._give_state
    monkeypatch.setattr(
        families.FamilyRunner, "_give_state", lambda own, part: (parted.append(part.number), give(own, part))
    )
    engine, _ = engine.followed_by(replace(plan, queries=plan.queries[1:]), {})
    engine.snapshot()
    assert parted == [0]
    given = engine.process(Arrivals(table.slice(32, 32))).matches
    assert {title: len(own) for title, own in given.items()} == {f"Q{n}": 4 if n < 7 else 3 for n in range(1, 8)}


def _counts(account: Account) -> dict[tuple[str, str, str], int]:
    return {key: count for key, count in account.items() if count}


@pytest.mark.parametrize("seed", range(8))
def test_an_index_routes_as_looking_at_all_records_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, indexed = random.Random(seed), 0
    for _ in range(3):
        plan = compile_text(book(chance, 12, False, chance.choice(["", "filters", "waits"]))).plan
        plan, records = read_ordered([rows(chance, 40, chance.random() < 0.4)], plan, None, {})
        assert isinstance(records, Records)
        for group in partition_groups.partition_groups(plan):
            looking = partition_groups._looking_of(group.selectors)
            indexed += looking is not None
            found = group.route(records.arrivals, 3)
            with monkeypatch.context() as patch:
                patch.setattr(partition_groups, "_looking_of", lambda _: None)
                expected = group.route(records.arrivals, 3)
            assert np.array_equal(found.is_wanted, expected.is_wanted)
            assert np.array_equal(found.bucket, expected.bucket)
            assert _counts(found.account) == _counts(expected.account)
    assert indexed, "some groups have many different selectors"


def test_the_books_give_something() -> None:
    assert sum(check(seed, 6) for seed in range(1_003, 1_006)) > 50
    assert looking.FEW < 30

"""The grammar's tables, and what may be written."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from querylang import build_tables, compile_text
from querylang.expression import Binary, Call, EventText, FieldOf, Literal, Type, Unary
from querylang.plan import Print, QueryPlan, Send

ROOT = Path(__file__).parents[2]

A = "event A { integer id; integer x; float y; string s; boolean b; float ts; action getTime() returns float { return ts; } }\n"


def query(text: str) -> QueryPlan:
    return compile_text(A + text).plan.queries[0]


def condition(text: str) -> object:
    return query(f"inputs {{ A() key id within 3; }} find A as a -> A as c where {text}").conditions[0]


@pytest.fixture(scope="module")
def built() -> object:
    return build_tables.build()


def test_the_grammar_has_no_conflict(built: object) -> None:
    assert built.sr_conflicts == []
    assert built.rr_conflicts == []


def test_the_shipped_tables_are_those_of_the_grammar(built: object) -> None:
    hint = "run `python -m querylang.build_tables`"
    assert build_tables.written(built) == build_tables.SHIPPED.read_text(), hint


def test_tables_do_not_depend_on_the_order_of_hashing() -> None:
    program = "from querylang import build_tables as b; import hashlib; print(hashlib.sha1(b.written(b.build()).encode()).hexdigest())"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_nothing_is_written_and_nothing_but_ply_is_needed(tmp_path: Path) -> None:
    program = (
        "import sys, querylang; querylang.check_text('inputs { A() within 3; } find A as a');"
        "print(sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "'ply', 'querylang'" in found.stdout
    for absent in ("pandas", "numba", "numpy", "pyarrow", "pyspark"):
        assert f"'{absent}'" not in found.stdout
    assert found.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_one_check_as_a_process_costs_little() -> None:
    program = "import querylang; querylang.check_text('inputs { A() within 3; } find A as a')"
    seconds = []
    for _attempt in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.5, "seconds of processor time"


ACCEPTED = {
    "the smallest file": "inputs < A() within 30 wait 20 seconds; >\nfind A as a1 -> A as a2",
    "a semicolon at the end": "inputs { A() within 30; } find A as a;",
    "an empty block": "inputs { A() within 30; } find A as a { }",
    "colons for as": "inputs { A() within 30; } find A:a1 -> A:a2",
    "brackets behind a type of the pattern": "inputs { A() within 30; } find A() as a",
    "groups of a sequence": "inputs { A() within 30; } find ((A as a -> (A as b)) -> A as c)",
    "a query with a name": "query Q { inputs { A() within 30; } find A as a }",
    "package and using": "package a.b; using com.apama.queries.*; using a.b.C; query Q { inputs { A() within 3; } find A as a }",
    "keywords with a hash": "inputs { A() within 3; } find A as #find -> A as #where where #find.x = #where.x",
    "soft keywords as names": "inputs { A() within 3; } find A as time -> A as from -> A as to where time.x = to.x",
    "comments": "// one\n/* two\n lines */ inputs { A() /* here */ within 3; } find A as a // end",
    "a point before a type": "inputs { .A() within 3; } find .A as a",
    "no line breaks": "inputs{A()within 3;}find A as a->A as b where a.x=b.x",
}


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted(text: str) -> None:
    assert query(text).terms


def test_several_queries_in_one_file_in_text_order() -> None:
    text = "query Two { inputs { A() within 3; } find A as a } inputs { A() within 3; } find A as a query One { inputs { A() within 3; } find A as a }"
    assert [item.name for item in compile_text(A + text, "dir/cards.query").plan.queries] == ["Two", "cards", "One"]


def test_a_bare_body_is_named_by_the_files_stem() -> None:
    text = "inputs { A() within 3; } find A as a"
    assert compile_text(text, "queries/cards.query").plan.queries[0].name == "cards"
    assert compile_text(text).plan.queries[0].name == "query"


SECOND = 1_000_000
DURATIONS = {
    "30": 30 * SECOND,
    "30.5": 30_500_000,
    "0.1": 100_000,
    "1e3": 1000 * SECOND,
    "10 minutes": 600 * SECOND,
    "1 min 30 sec": 90 * SECOND,
    "1 day 2 hours 3 minutes 4 seconds 5 milliseconds": 93_784_005_000,
    "1.5 hours": 5400 * SECOND,
    "2 days": 172_800 * SECOND,
    "1 hour": 3600 * SECOND,
    "1 second": SECOND,
    "7 msec": 7000,
    "1 millisecond": 1000,
    "2 * 60": 120 * SECOND,
    "(7 / 2)": 3 * SECOND,
    "7.0 / 2.0": 3_500_000,
    "-7 % 4 + 4": SECOND,
    "60 - -1": 61 * SECOND,
    "3.7.toInteger() + 1": 4 * SECOND,
    "3.toFloat() + 0.5": 3_500_000,
    "0.0000005": None,
    "0.0000006": 1,
}


@pytest.mark.parametrize(("text", "length"), DURATIONS.items())
def test_durations_are_whole_microseconds(text: str, length: int | None) -> None:
    if length is None:
        length = 0
        with pytest.raises(Exception, match="not-positive"):
            query(f"inputs {{ A() within {text}; }} find A as a")
        return
    plan = query(f"inputs {{ A() within {text} wait {text}; }} find A as a within {text}")
    assert (plan.inputs[0].within, plan.inputs[0].wait, plan.within) == (length, length, length)


X, CX = FieldOf(Type.INTEGER, 0, "x"), FieldOf(Type.INTEGER, 1, "x")
Y, S, B = FieldOf(Type.FLOAT, 0, "y"), FieldOf(Type.STRING, 0, "s"), FieldOf(Type.BOOLEAN, 0, "b")


def integer(value: int) -> Literal:
    return Literal(Type.INTEGER, value)


def of_integers(operator: str, left: object, right: object) -> Binary:
    return Binary(Type.INTEGER, operator, left, right)


def boolean(operator: str, left: object, right: object) -> Binary:
    return Binary(Type.BOOLEAN, operator, left, right)


EXPRESSIONS = {
    "a.x = 1 + 2 * 3": boolean("=", X, of_integers("+", integer(1), of_integers("*", integer(2), integer(3)))),
    "a.x = (1 + 2) * 3": boolean("=", X, of_integers("*", of_integers("+", integer(1), integer(2)), integer(3))),
    "a.x - 1 - 2 < c.x": boolean("<", of_integers("-", of_integers("-", X, integer(1)), integer(2)), CX),
    "a.x / 2 % 3 >= -a.x": boolean(
        ">=", of_integers("%", of_integers("/", X, integer(2)), integer(3)), Unary(Type.INTEGER, "-", X)
    ),
    "a.x > -3": boolean(">", X, integer(-3)),
    "a.x > 1 - -3": boolean(">", X, of_integers("-", integer(1), integer(-3))),
    "a.x >= -9223372036854775808": boolean(">=", X, integer(-(1 << 63))),
    "not a.b or a.b xor a.x = 3": boolean(
        "or", Unary(Type.BOOLEAN, "not", B), boolean("xor", B, boolean("=", X, integer(3)))
    ),
    "not (a.b and a.b) or a.b": boolean("or", Unary(Type.BOOLEAN, "not", boolean("and", B, B)), B),
    "(a.x = 1) = a.b": boolean("=", boolean("=", X, integer(1)), B),
    'a.s != "say \\"hi\\"\\n"': boolean("!=", S, Literal(Type.STRING, 'say "hi"\n')),
    'a.s + a.x.toString() = "x"': boolean(
        "=", Binary(Type.STRING, "+", S, Call(Type.STRING, "toString", X)), Literal(Type.STRING, "x")
    ),
    "a.x.toFloat() > a.y": boolean(">", Call(Type.FLOAT, "toFloat", X), Y),
    "a.y.toInteger() > a.x": boolean(">", Call(Type.INTEGER, "toInteger", Y), X),
    "a.y.toFloat() > 1.5e2": boolean(">", Y, Literal(Type.FLOAT, 150.0)),
    "a.s.toString() = a.s": boolean("=", S, S),
    "a.toString() = a.s": boolean("=", EventText(0), S),
    "c.getTime() - a.getTime() > 3.0": boolean(
        ">",
        Binary(Type.FLOAT, "-", FieldOf(Type.FLOAT, 1, "ts"), FieldOf(Type.FLOAT, 0, "ts")),
        Literal(Type.FLOAT, 3.0),
    ),
    "a.y < infinity": boolean("<", Y, Literal(Type.FLOAT, float("inf"))),
    "a.y > -float.INFINITY": boolean(">", Y, Unary(Type.FLOAT, "-", Literal(Type.FLOAT, float("inf")))),
    "id = 3": boolean("=", FieldOf(Type.INTEGER, 1, "id"), integer(3)),
    "true": Literal(Type.BOOLEAN, True),
}


@pytest.mark.parametrize(("text", "tree"), EXPRESSIONS.items())
def test_expressions(text: str, tree: object) -> None:
    assert condition(text) == tree


FILTERS = {
    "": None,
    "x > 3": boolean(">", X, integer(3)),
    'x = 3, s = "a"': boolean("and", boolean("=", X, integer(3)), boolean("=", S, Literal(Type.STRING, "a"))),
    "x = *": None,
    "*, 3": boolean("=", X, integer(3)),
    "*, > 3": boolean(">", X, integer(3)),
    "*, [1 : 5)": boolean("and", boolean(">=", X, integer(1)), boolean("<", X, integer(5))),
    "*, (1 : 5]": boolean("and", boolean(">", X, integer(1)), boolean("<=", X, integer(5))),
    "*, (1 + 1)": boolean("=", X, of_integers("+", integer(1), integer(1))),
    "*, 3, y > 1.0": boolean("and", boolean("=", X, integer(3)), boolean(">", Y, Literal(Type.FLOAT, 1.0))),
    "x in [1 : 5]": boolean("and", boolean(">=", X, integer(1)), boolean("<=", X, integer(5))),
    "x in [5 : 5]": boolean("and", boolean(">=", X, integer(5)), boolean("<=", X, integer(5))),
    'b = true, s <= "m"': boolean(
        "and", boolean("=", B, Literal(Type.BOOLEAN, True)), boolean("<=", S, Literal(Type.STRING, "m"))
    ),
    "y > -1.5": boolean(">", Y, Literal(Type.FLOAT, -1.5)),
}


@pytest.mark.parametrize(("text", "tree"), FILTERS.items())
def test_filters_become_one_condition_over_the_event(text: str, tree: object) -> None:
    assert query(f"inputs {{ A({text}) within 3; }} find A as a").inputs[0].filter == tree


def test_print_joins_text() -> None:
    plan = query(
        'inputs { A() within 3; } find A as a1 -> A as a2 { print "a1=" + a1.toString() + "; a2=" + a2.toString(); }'
    )
    first = Binary(Type.STRING, "+", Literal(Type.STRING, "a1="), EventText(0))
    second = Binary(Type.STRING, "+", first, Literal(Type.STRING, "; a2="))
    assert plan.block == (Print(Binary(Type.STRING, "+", second, EventText(1))),)


def test_send_takes_a_constructor_or_a_name_of_the_pattern() -> None:
    plan = compile_text(
        "event A { integer x; } event Alert { integer who; float how; }"
        'inputs { A() key x within 3; } find A as a { send Alert(x, 1.5) to "one"; send a to "two"; }'
    ).plan
    x = FieldOf(Type.INTEGER, 0, "x")
    one, two = Literal(Type.STRING, "one"), Literal(Type.STRING, "two")
    assert plan.queries[0].block == (Send("Alert", (x, Literal(Type.FLOAT, 1.5)), one), Send("A", (x,), two))


def test_a_where_may_stand_several_times_and_before_within() -> None:
    plan = query("inputs { A() within 3; } find A as a where a.b within 5 where a.x = 1 and a.x = 2")
    assert plan.conditions == (B, boolean("=", X, integer(1)), boolean("=", X, integer(2)))
    assert plan.within == 5 * SECOND


def test_a_field_may_be_called_like_a_keyword() -> None:
    text = "event E { integer day; integer time; integer #where; integer key; }"
    body = "inputs { E(time > 3) key day, key within 3; } find E as e where e.where = e.time and e.day = day"
    assert compile_text(text + body).plan.queries[0].keys == ("day", "key")

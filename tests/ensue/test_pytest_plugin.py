"""Cases as tests: what passes, what fails and how, what is rewritten."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import ensue

pytest_plugins = ["pytester"]

CASE = """# a comment that stays
- name: one
  inputs: {A: {wait: 20, out_of_order: true}}
  within: 30
  rows:
    - {at: "10:00:20", id: 1, in: A, ts: "10:00:10", dt: "10:00:00"}   # first
    - {at: "10:00:32", id: 3, in: A, ts: "10:00:15", dt: "10:00:12"}
    - {at: "10:00:35", dt: "10:00:15", out: [[1, 3]]}
    - {at: "10:00:37", id: 2, in: A, ts: "10:00:12", dt: "10:00:17", discard: late}
"""
ALTERED = [
    ("[[1, 3]]", "[[1, 2]]"),
    ("[[1, 3]]", "[]"),
    ('dt: "10:00:15", out', 'dt: "10:00:14", out'),
    ("discard: late", "discard: out_of_order"),
    (", discard: late", ""),
    ('    - {at: "10:00:35", dt: "10:00:15", out: [[1, 3]]}\n', ""),
]


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Runs a query: numpy and numba cannot be loaded twice, and pytester unloads what its runs import."""
    text = "event A { integer v; } inputs { A() within 9.0; } find A as a -> A as b"
    for ordering in (None, "stream_analytics"):
        ensue.replay(text, [{"at": 1, "ts": 1, "v": 1}, {"at": 2, "ts": 2, "v": 2}], ordering=ordering)


def write(pytester: pytest.Pytester, text: str) -> Path:
    path = pytester.path / "x.case.yaml"
    path.write_text(text)
    return path


def test_a_case_that_holds_passes(pytester: pytest.Pytester) -> None:
    write(pytester, CASE)
    pytester.runpytest().assert_outcomes(passed=1)


@pytest.mark.parametrize(("found", "altered"), ALTERED)
def test_a_case_with_a_wrong_expectation_fails(pytester: pytest.Pytester, found: str, altered: str) -> None:
    assert CASE.count(found) == 1
    write(pytester, CASE.replace(found, altered))
    pytester.runpytest().assert_outcomes(failed=1)


def test_a_failure_shows_both_tables_with_the_first_difference_marked(pytester: pytest.Pytester) -> None:
    write(pytester, CASE.replace("[[1, 3]]", "[[1, 2]]"))
    result = pytester.runpytest()
    result.stdout.fnmatch_lines(
        [
            "embedded, row by row",
            "*at*row*event*key*|*expected definitive*out*discard*|*observed definitive*out*discard*text",
            "   10:00:32  2    A(3)  *|     10:00:12 *",
            ">  10:00:35  3 *|  >  10:00:15 *(1,2) *|  >  10:00:15 *(1,3) *a1=A(1), a2=A(3)",
        ]
    )
    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize(
    ("found", "altered", "line", "message"),
    [
        ("within: 30", "withn: 30", 4, "*'withn'*; did you mean 'within'?"),
        ("wait: 20", "waits: 20", 3, "*'waits'*; did you mean 'wait'?"),
        ('dt: "10:00:00"', 'tds: "10:00:00"', 6, "row 1: 'tds' is not a key of a row with 'A'; did you mean 'ts'?"),
        ('- {at: "10:00:20", id', "- {id", 6, "'row 1' has no 'at'"),
        ('- {at: "10:00:20", id', '- {at: "noon", id', 6, "'at': 'noon' is not a time: *"),
        ("out: [[1, 3]]", "out: 5", 8, "'out' must be a list, not '5'"),
        ("wait: 20", "wait: soon", 3, "'wait' must be a number of seconds, not 'soon'"),
        ("within: 30", "leeway: 30", 4, "'leeway' must be two numbers of seconds: [[]delayLeeway, reorderBuffer]"),
        ("within: 30", "ordering: {policy: apama, leway: 3}", 4, "*'leway'*; did you mean 'leeway'?"),
        ("  rows:", "  rows: []\n  x:", 5, "'rows' is empty"),
        (
            '- {at: "10:00:20", id',
            '- {at: "10:00:20", event: 5, id',
            6,
            "'event' must be an event type, or an event as text, not '5'",
        ),
        ("out: [[1, 3]]", "out: [[!!timestamp x, 3]]", 8, "'out': 'x' is not a date or time that exists"),
        ("out: [[1, 3]]", "out: &a [*a]", 8, "[*]a contains itself"),
    ],
)
def test_a_mistake_in_a_case_is_reported_with_its_line(
    pytester: pytest.Pytester, found: str, altered: str, line: int, message: str
) -> None:
    write(pytester, CASE.replace(found, altered))
    result = pytester.runpytest()
    assert result.ret != 0
    result.stdout.fnmatch_lines([f"*x.case.yaml:{line}: {message}"])


def test_all_mistakes_of_a_case_file_are_reported(pytester: pytest.Pytester) -> None:
    write(
        pytester, CASE.replace("wait: 20", "wait: soon").replace("within", "withn").replace("out: [[1, 3]]", "out: 5")
    )
    failures = "\n".join(pytester.runpytest("-r", "N").outlines)  # a summary may repeat every line
    lines = re.findall(r"x\.case\.yaml:(\d+:)", failures)
    assert lines == ["2:", "3:", "4:", "8:"]


def test_a_case_may_have_the_text_of_its_query(pytester: pytest.Pytester) -> None:
    write(
        pytester,
        """name: rising
query: |
  event A { string k; float v; }
  inputs { A() key k within 10 minutes; }
  find A as x -> A as y where y.v > x.v { print x.k + " rises to " + y.v.toString(); }
rows:
  - {at: "10:00:00", event: 'A("a",1.0)'}
  - {at: "10:00:01", event: 'A("a",2.0)', out: ["a rises to 2.0"]}
""",
    )
    pytester.runpytest("--ensue-accept").assert_outcomes(passed=1)
    pytester.runpytest().assert_outcomes(passed=1)


@pytest.mark.parametrize(("found", "altered"), ALTERED)
def test_accept_rewrites_expectations_and_nothing_else(pytester: pytest.Pytester, found: str, altered: str) -> None:
    path = write(pytester, CASE.replace(found, altered))
    pytester.runpytest("--ensue-accept").assert_outcomes(passed=1)
    pytester.runpytest().assert_outcomes(passed=1)
    text = path.read_text()
    assert text.startswith("# a comment that stays\n- name: one\n")
    assert "# first\n" in text
    assert text.count("\n") == CASE.count("\n")


def test_the_rows_of_a_case_say_the_fields_that_nothing_defines(pytester: pytest.Pytester) -> None:
    case = """- name: rises
  query: |
    query Q { inputs { P() within 1 hour; } find P as x -> P as y where y.amount - x.amount >= 5.0 }
  rows:
    - {at: 1, event: P, amount: 20}
    - {at: 2, event: P, amount: 30.5, out: ["x=P(20.0), y=P(30.5)"]}
"""
    pytester.makefile(".case.yaml", inferred=case, unknown=case.replace("x.amount", "x.amounts"))
    result = pytester.runpytest()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*'P' has no field 'amounts'; did you mean 'amount'?*"])


ONE_TYPE = """- name: rises
  query: |
    inputs { P() key k within 1 hour; } find P as x -> P as y where y.v > x.v
  rows:
    - {at: 1, k: a, v: 20}
    - {at: 2}
    - {at: 3, k: a, v: 30, out: ['x=P("a",20), y=P("a",30)']}
"""


def test_rows_without_an_event_are_of_the_only_type(pytester: pytest.Pytester) -> None:
    several = ONE_TYPE.replace("P() key k within 1 hour;", "P() key k within 1 hour; B() key k within 1 hour;")
    pytester.makefile(
        ".case.yaml", one=ONE_TYPE, several=several, some=ONE_TYPE.replace("{at: 2}", "{at: 2, event: P}")
    )
    pytester.runpytest().assert_outcomes(passed=1, failed=2)


def test_a_case_may_name_its_query(pytester: pytest.Pytester) -> None:
    (pytester.path / "q.query").write_text(
        "event A { integer v; }\ninputs { A() within 9.0; }\nfind A as a -> A as b { print b.toString(); }\n"
    )
    write(pytester, 'query: q.query\nrows: [{at: 1, in: A, v: 1}, {at: 2, in: A, v: 2, out: ["A(2)"]}]\n')
    pytester.runpytest().assert_outcomes(passed=1)


KEYED = """query Q {
    inputs { A() key card within 9.0; }
    find A as a -> A as b { print a.card + ": " + b.toString(); }
}
"""


def test_a_failure_shows_event_key_and_text_of_each_row(pytester: pytest.Pytester) -> None:
    (pytester.path / "q.query").write_text("event A { string card; integer v; }\n" + KEYED)
    write(
        pytester, "query: q.query\nrows: [{at: 1, in: A, card: x, v: 1}, {at: 2, in: A, card: x, v: 2, out: [[1]]}]\n"
    )
    result = pytester.runpytest()
    result.stdout.fnmatch_lines(
        ['   00:00:01  1    A("x",1)  x *', '>  00:00:02  2    A("x",2)  x *(1) *(1,2) *x: A("x",2)']
    )


def test_accept_writes_texts_where_a_case_expects_nothing_yet(pytester: pytest.Pytester) -> None:
    (pytester.path / "q.query").write_text("event A { string card; integer v; }\n" + KEYED)
    path = write(
        pytester, "query: q.query\nrows:\n  - {at: 1, in: A, card: x, v: 1}\n  - {at: 2, in: A, card: x, v: 2}\n"
    )
    pytester.runpytest("--ensue-accept").assert_outcomes(passed=1)
    assert path.read_text().splitlines()[-1] == r"""  - {at: 2, in: A, card: x, v: 2, out: ["x: A(\"x\",2)"]}"""
    pytester.runpytest().assert_outcomes(passed=1)


def test_a_broken_file_of_cases_fails_and_the_others_run(pytester: pytest.Pytester) -> None:
    write(pytester, CASE)
    (pytester.path / "broken.case.yaml").write_text(CASE.replace("within", "withn"))
    result = pytester.runpytest()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*broken.case.yaml:4: *'withn'*"])
    assert "Traceback" not in result.stdout.str()


PARAMETERS = """query: q.query
parameters: {least: 2}
rows: [{at: 1, in: A, v: 1}, {at: 2, in: A, v: 2, out: [[2]]}]
"""


@pytest.mark.parametrize(("least", "outcome"), [("2", "passed"), ("1", "failed"), ("x", "failed")])
def test_a_case_may_give_parameters(pytester: pytest.Pytester, least: str, outcome: str) -> None:
    (pytester.path / "q.query").write_text(
        "event A { integer v; }\n"
        "query Q { parameters { integer least; } inputs { A(v >= least) within 9.0; } find A as a }\n"
    )
    write(pytester, PARAMETERS.replace("least: 2", f"least: {least}"))
    pytester.runpytest().assert_outcomes(**{outcome: 1})


ORDERED = """inputs: {A: {}}
within: 30
ordering: {policy: stream_analytics, late: 15s, out_of_order: 5s}
rows:
  - {at: "00:10:00", id: 1, in: A, ts: "00:09:58"}
  - {at: "00:10:01", id: 2, in: A, ts: "00:09:50", partition: 0, dt: "00:09:53"}
  - {at: "00:10:05", id: 3, in: A, ts: "00:10:05", dt: "00:10:00", out: [[2, 1]]}
"""


@pytest.mark.parametrize(
    ("altered", "outcome"),
    [("late: 15s", "passed"), ("late: 5s", "failed"), ("lat: 15s", "failed")],
)
def test_a_case_may_have_an_ordering(pytester: pytest.Pytester, altered: str, outcome: str) -> None:
    write(pytester, ORDERED.replace("late: 15s", altered))
    pytester.runpytest().assert_outcomes(**{outcome: 1})


def test_what_a_find_every_selects_and_what_is_unset_can_be_expected(pytester: pytest.Pytester) -> None:
    types = "event A { integer v; }\nevent B { integer v; }\ninputs { A() within 9.0; B() within 9.0; }\n"
    (pytester.path / "every.query").write_text(types + "find every A as a select sum(a.v) as s select count() as n\n")
    (pytester.path / "either.query").write_text(types + "find A as a or B as b\n")
    ends = "find every A as a select first(a) as oldest select last(a) as newest having count() = 2\n"
    (pytester.path / "ends.query").write_text(types + ends)
    write(
        pytester,
        "- {name: every, query: every.query, rows: [{at: 1, in: A, v: 5, out: [[5, 1]]}]}\n"
        "- {name: ends, query: ends.query, rows: [{at: 1, in: A, v: 5}, {at: 2, in: A, id: z, v: 6, out: [[1, z]]}]}\n"
        "- {name: either, query: either.query, rows: [{at: 1, in: B, v: 5, out: [[null, 1]]}]}\n",
    )
    pytester.runpytest().assert_outcomes(passed=3)


def test_a_query_with_a_mistake_fails_with_its_place(pytester: pytest.Pytester) -> None:
    (pytester.path / "q.query").write_text("inputs { A() within 9.0; }\nfind A as a -> B as b\n")
    write(pytester, "query: q.query\nrows: [{at: 1, in: A}]\n")
    result = pytester.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*q.query:2:16: *"])


def test_executors_are_chosen_by_name(pytester: pytest.Pytester) -> None:
    write(pytester, CASE)
    result = pytester.runpytest("--ensue-executors=embedded,batch,stream", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["*one[[]embedded]", "*one[[]batch]", "*one[[]stream]"])
    assert pytester.runpytest("--ensue-executors=flink").ret != 0


def test_the_fixture_replays(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(ensue_replay):
            text = "event A { integer v; } inputs { A() within 9.0; } find A as a -> A as b"
            assert len(ensue_replay(text, [{"at": 1, "v": 1}, {"at": 2, "v": 2}]).matches) == 1
        """
    )
    pytester.runpytest().assert_outcomes(passed=1)


def test_names_and_values_are_printed_escaped(pytester: pytest.Pytester) -> None:
    hostile = "\x1b]0;x\x07\x9b31m\u202e"
    case = CASE.replace("name: one", f"name: {json.dumps(hostile)}").replace(
        "discard: late", f"discard: {json.dumps(hostile)}"
    )
    write(pytester, case)
    (pytester.path / "y.case.yaml").write_text(json.dumps([{hostile: 1}]))
    result = pytester.runpytest("-v", "--continue-on-collection-errors")
    result.assert_outcomes(failed=2)
    printed = "\n".join(result.outlines + result.errlines)
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(printed)
    assert "\\x9b31m" in printed


@pytest.mark.parametrize("chosen", ["not redirected", "not test_it or redirected"])
def test_that_kernels_are_compiled_is_told_although_output_is_captured(pytester: pytest.Pytester, chosen: str) -> None:
    write(pytester, CASE)
    pytester.makepyfile(
        """
        import contextlib, io

        from runtime.progress_line import compiling

        def test_it():
            with compiling("search", 1):
                print("by the test")

        def test_it_redirected():
            with contextlib.redirect_stdout(io.StringIO()) as out, compiling("search", 1):
                print("by the other test")
            assert out.getvalue() == "by the other test\\n"
        """
    )
    done = pytester.runpytest_subprocess("-k", chosen)
    done.assert_outcomes(passed=2, deselected=1)
    assert "compiling kernels for this machine, once" in done.stderr.str()
    assert "by the test" not in done.stdout.str()


# ------------------------------------------------------------------------------------------------ why the first differs

RISES = """- name: rises
  query: |
    event A { string k; float v; }
    query Q {
        inputs { A() key k within 10 minutes; }
        find A as x -> A as y where y.v > x.v + 2.0
    }
  rows:
    - {at: 1, event: 'A("a",1.0)'}
    - {at: 2, event: 'A("a",2.0)'}
    - {at: 3, event: 'A("a",9.0)', out: [[1, 3]]}
"""


def said(pytester: pytest.Pytester, text: str, *options: str) -> list[str]:
    """What a failing case says of its first difference."""
    write(pytester, text)
    result = pytester.runpytest("-r", "N", *options)
    result.assert_outcomes(failed=1)
    assert "Traceback" not in result.stdout.str()
    lines = result.outlines
    begins = next(number for number, line in enumerate(lines) if line.startswith("why: "))
    return lines[begins : next(number for number in range(begins, len(lines)) if lines[number].startswith("==="))]


def test_a_match_that_did_not_come_has_its_nearest_miss_and_the_least_change(pytester: pytest.Pytester) -> None:
    lines = said(pytester, RISES.replace("2.0)'}", "2.0)', out: [[1, 2]]}").replace("[[1, 3]]", "[[2, 3]]"))
    assert lines == [
        "why: (1,2) did not come",
        "  Q, k a: no match",
        '    A("a",2.0) of row 2, 00:00:02',
        "    1. where: `where y.v > x.v + 2.0` does not hold: y.v is 2.0, x.v + 2.0 is 3.0, x.v is 1.0",
        '         x = A("a",1.0) of row 1, 00:00:01',
        '         y = A("a",2.0) of row 2, 00:00:02',
        "       nothing else fails",
        "       the least change, which was tried: where y.v > x.v + 2.0 -> where y.v > x.v + 0.99",
        "           the line to paste: find A as x -> A as y where y.v > x.v + 0.99",
    ]


def test_of_a_match_that_another_took_the_place_of_the_expected_one_is_named(pytester: pytest.Pytester) -> None:
    lines = said(pytester, RISES)
    assert lines[:2] == ["why: (1,3) did not come", "  Q, k a: matched"]
    assert lines[8:] == [
        "    other candidates:",
        '      x = A("a",1.0) of row 1, 00:00:01, y = A("a",9.0) of row 3, 00:00:03: the match has x (row 2) instead,',
        "         which is newer",
    ]


def test_a_match_that_was_not_expected_has_its_steps_and_conditions(pytester: pytest.Pytester) -> None:
    lines = said(pytester, RISES.replace(", out: [[1, 3]]", ""))
    assert lines[:4] == [
        'why: x=A("a",2.0), y=A("a",9.0) came',
        "  Q, k a: matched",
        '    A("a",9.0) of row 3, 00:00:03',
        "    matched: x (row 2), y (row 3)",
    ]
    assert lines[5:8] == [
        '      x = A("a",2.0) of row 2, 00:00:02',
        '      y = A("a",9.0) of row 3, 00:00:03',
        "      where y.v > x.v + 2.0: y.v is 9.0, x.v + 2.0 is 4.0, x.v is 2.0",
    ]


@pytest.mark.parametrize("executor", ["embedded", "local"])
def test_a_record_that_was_late_says_the_wait_that_lets_it_in(pytester: pytest.Pytester, executor: str) -> None:
    lines = said(pytester, CASE.replace("[[1, 3]]", "[[1, 2]]"), f"--ensue-executors={executor}")
    assert lines[0] == "why: (1,2) did not come"
    assert "    the least change, which was tried: wait 20 seconds -> wait 25 seconds" in lines
    lines = said(pytester, CASE.replace(", discard: late", ""), f"--ensue-executors={executor}")
    assert lines[:2] == ["why: row 4 was discarded", "  Case: refused"]


def test_a_match_that_came_at_another_time_says_when(pytester: pytest.Pytester) -> None:
    early = CASE.replace(', dt: "10:00:12"}', ', dt: "10:00:12", out: [[1, 3]]}').replace('15", out: [[1, 3]]', '15"')
    assert said(pytester, early)[0] == "why: (1,3) came at 10:00:35 instead"


def test_cases_that_pass_ask_nothing(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    from ensue.testing import case_run

    monkeypatch.setattr(case_run, "why_differs", None)
    write(pytester, CASE)
    pytester.runpytest().assert_outcomes(passed=1)

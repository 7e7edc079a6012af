"""Events that a query routes and no query takes."""

from __future__ import annotations

from pathlib import Path

import querylang
from ensue.commands.findings import check_files
from job_engine.job.plan_rules import lost_routes, taken_events, written_by
from querylang.checker.checked import Written
from querylang.load import compile_checked

TEXT = """event A { integer n; } event B { integer n; } event C { integer n; }
query Q { inputs { A() within 9.0; } find A as a { if a.n > 1 then { route B(1); route C(2); route C(3); } } }
query R { inputs { B() within 9.0; } find B as b }"""


def test_each_type_is_reported_once() -> None:
    plan = querylang.compile_text(TEXT).plan
    found = list(lost_routes(written_by(plan), taken_events(plan)))
    assert found == ["query Q: routes 'C', which no query here takes"]


def test_a_file_that_is_a_program_by_itself_is_asked_too(tmp_path: Path) -> None:
    file = tmp_path / "q.query"
    file.write_text(TEXT, "utf-8")
    assert [str(item) for item in check_files([file]).warnings] == [
        f"{file}: query Q: routes 'C', which no query here takes"
    ]


def test_what_another_file_takes_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / "q.query").write_text(TEXT, "utf-8")
    (tmp_path / "taker.query").write_text("query T { inputs { C() within 9.0; } find C as c }", "utf-8")
    assert check_files([tmp_path]).warnings == ()


def test_types_that_nothing_defines_are_routed_too(tmp_path: Path) -> None:
    file = tmp_path / "q.query"
    file.write_text("inputs { A() within 9.0; } find A as a { if a.n > 1 { route B(a.n); } }", "utf-8")
    assert [str(item) for item in check_files([file]).warnings] == [
        f"{file}: query q: routes 'B', which no query here takes"
    ]


WRITING = r"""event A { integer n; string to; }
event I { integer n; string to; }
query Q {
  parameters { string place; }
  inputs { I() within 9.0; }
  find I as a {
    print "x"; { log "y" at INFO; }
    if a.n > 1 { send a to "c"; } else { emit a to a.to; }
    while a.n > 2 { emit a; break; }
    for i in [1] { send A(1, "") to place; }
    A other := new A; route other; route A(1, ""); route make(a); send other to "com.apama.queries";
    %send("eventType":"A", "channel":"\"d\"", "fields":{"n":"1"});
  }
  action make(I x) returns A { A made := new A; route made; return made; }
}"""


def test_the_text_says_what_the_plan_says() -> None:
    checked = querylang.check_text(WRITING)
    (planned,) = written_by(compile_checked(checked)).values()
    (told,) = checked.written.values()
    computed = Written("route", event=None)
    assert len(planned) == 12
    assert list(told) == [computed if index == 8 else item for index, item in enumerate(planned)]

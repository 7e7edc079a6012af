"""Calls of TimeFormat: what they mean, and what is said about those that cannot be right."""

import pytest

import querylang
from querylang.plan.expression import Call, Type
from querylang.plan.library import TIME_FORMAT
from tests.querylang.checker.probe import infer


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ('TimeFormat.format(a.x, "yyyy")', Type.STRING),
        ('(new TimeFormat).format(1, "yyyy")', Type.STRING),
        (f'{TIME_FORMAT}.formatWithTimeZone(a.x, a.s, "Europe/Berlin")', Type.STRING),
        ("TimeFormat.parseTimeWithTimeZone(a.s, a.s, a.s)", Type.FLOAT),
        ('TimeFormat.parse("HH:mm", a.s)', Type.FLOAT),
    ],
)
def test_a_call_has_a_type(text: str, type_: Type) -> None:
    found, mistakes = infer(text)
    assert isinstance(found, Call)
    assert (found.type, mistakes) == (type_, [])
    assert found.method.startswith(f"{TIME_FORMAT}.")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('TimeFormat.format(a.x, "YYYY")', "time-format: the pattern letter `Y` is not supported"),
        ('TimeFormat.parse("HH:mmT", a.s)', "time-format: `T` is not a pattern letter; text stands between quotes"),
        ('TimeFormat.parseWithTimeZone("HH", a.s, "Berlin")', "time-format: unknown time zone 'Berlin'"),
        ("TimeFormat.getSystemTime()", "not-in-queries: `getSystemTime` cannot be used in a query: the clock"),
        ('TimeFormat.compilePattern("HH")', "not-in-queries: `compilePattern` cannot be used in a query: patterns"),
        ('TimeFormat.formt(a.x, "yyyy")', "unknown-method: TimeFormat has no method 'formt'; did you mean 'format'?"),
        ('TimeFormat.format("x", "yyyy")', "type: an argument of 'format' must be float, not string"),
        ("TimeFormat.format(a.x)", "argument-count: 'format' takes 2 arguments, not 1"),
    ],
)
def test_what_cannot_be_right_is_refused(text: str, problem: str) -> None:
    found, mistakes = infer(text)
    assert found is None
    (mistake,) = mistakes
    assert problem in str(mistake)


def test_a_type_of_that_name_has_precedence() -> None:
    text = """
        event TimeFormat { string format; action parse(string text) returns string { return text; } }
        query Q {
            inputs { TimeFormat() key format within 1.0; }
            find TimeFormat as t { print t.parse(t.format); }
        }
    """
    plan = querylang.compile_text(text).plan
    assert [event.name for event in plan.events] == ["TimeFormat"]


@pytest.mark.parametrize("using", ["", f"using {TIME_FORMAT};"])
def test_it_is_an_event_type_of_the_plan_only_where_there_is_a_value(using: str) -> None:
    query = "event A { integer n; } query Q { inputs { A() within 1.0; } find A as a { %s } }"
    called = querylang.compile_text(using + query % 'print TimeFormat.format(1.0, "yyyy");').plan
    made = querylang.compile_text(using + query % "TimeFormat t := new TimeFormat;").plan
    assert [event.name for event in called.events] == ["A"]
    assert [event.name for event in made.events] == ["A", TIME_FORMAT]

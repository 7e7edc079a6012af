"""Texts that are far too large or deep: an answer or a clear limit, never a crash, and soon."""

from __future__ import annotations

import pytest

from querylang import QueryErrors, check_text, compile_text
from querylang.errors import Mistake
from querylang.formatter.formatting import format_text
from querylang.source import Source
from querylang.syntax.parser import parse
from tests.support.pace import measured

HEAD = "event A { integer x; boolean b; } inputs { A() within 5; } find A as a where "
BODY = "inputs { A() within 5; } find A as a "
MANY = 10_000


def test_ten_thousand_brackets() -> None:
    assert compile_text(f"{HEAD}{'(' * MANY}a.x = 3{')' * MANY}").plan.queries[0].conditions


def test_a_deeply_grouped_pattern() -> None:
    text = f"inputs {{ A() within 5; }} find {'(' * MANY}A as a{')' * MANY}"
    assert len(compile_text(text).plan.queries[0].terms) == 1


def test_a_thousand_terms() -> None:
    pattern = " -> ".join(f"A as a{number}" for number in range(1000))
    assert len(compile_text(f"inputs {{ A() within 5; }} find {pattern}").plan.queries[0].terms) == 1000


def test_thousands_of_conditions() -> None:
    assert len(compile_text(HEAD + " and ".join(["a.x = 3"] * 3000)).plan.queries[0].conditions) == 3000


@pytest.mark.parametrize("text", ["a.b or a.b", "1 + a.x > 3", '"x" + a.s = ""'])
def test_thousands_of_terms_of_a_chain_are_no_depth(text: str) -> None:
    first, operator, rest = text.split(" ", 2)
    condition = f"{first} {operator} " * (MANY // 4) + rest
    head = HEAD.replace("boolean b;", "boolean b; string s;")
    (where,) = compile_text(head + condition).plan.queries[0].conditions
    text_again = format_text(head + condition)
    assert compile_text(text_again).plan.queries[0].conditions == (where,)


DEEP = {
    "minus": HEAD + "-" * MANY + "a.x = 3",
    "not": HEAD + "not " * MANY + "a.b",
    "sum of floats": HEAD + "1.5" + " + 1.5" * MANY + " = 3.0",
    "sum to the right": HEAD + "a.x = " + "(1 + " * MANY + "1" + ")" * MANY,
    "or within and": HEAD + "(" * MANY + "a.b" + " and a.b or a.b)" * MANY,
    "calls": HEAD + "a.x" + ".toString()" * MANY + ' = ""',
    "calls in calls": HEAD + "f(" * MANY + "1" + ")" * MANY,
    "members": HEAD + "a" + ".x" * MANY + " = 3",
    "indexes": HEAD + "a[" * MANY + "1" + "]" * MANY,
    "sequences": HEAD + "[" * MANY + "]" * MANY,
    "dictionaries": HEAD + "{1:" * MANY + "1" + "}" * MANY,
    "patterns": "inputs { A() within 5; } find " + "(A as a and (A as b or " * 2000 + "A as c" + "))" * 2000,
    "blocks": BODY + "{" * MANY + "}" * MANY,
    "ifs": BODY + "{" + "if true {" * MANY + "}" * MANY + "}",
    "types": f"event A {{ {'sequence<' * 5_000}float{'>' * 5_000} x; }}",
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
def test_nesting_has_a_limit(text: str) -> None:
    with pytest.raises(QueryErrors) as caught:
        compile_text(text)
    assert "limit" in {error.code for error in caught.value.errors}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
def test_what_is_too_deep_for_a_layout_says_so(text: str) -> None:
    found = layout_or_messages(text)
    assert found == [Mistake.LAYOUT_TOO_DEEP.words] or (isinstance(found, str) and parse(Source("x", found))[0].items)


def layout_or_messages(text: str) -> str | list[str]:
    try:
        return format_text(text)
    except QueryErrors as found:
        return [error.message for error in found.errors]


def test_a_long_chain_of_else_if_is_no_depth_for_a_layout() -> None:
    text = BODY + "{ if true { }" + " else if true { }" * 1000 + " }"
    assert format_text(text).count("else if") == 1000


BROKEN = {
    "open brackets": HEAD + "(" * MANY,
    "open blocks": BODY + "{" * MANY,
    "open ifs": BODY + "{" + "if (a { " * MANY,
    "closing braces": "}" * MANY,
    "patterns": f"inputs {{ A() within 5; }} find {'(A as a and ((' * 1_000}A as a{')))' * 1_000}",
    "digits": HEAD + "a.x = " + "9" * 100_000,
    "zeros": HEAD + "a.x = b.x + " + "0" * 100_000,
    "an exponent": HEAD + "a.x = 1e" + "9" * 100_000 + "d",
    "a long name": HEAD + "a." + "x" * 100_000 + " = 3",
    "inputs": "inputs { " + "A(; " * MANY,
    "statements": BODY + "{" + "x y z;\n" * MANY + "}",
    "arguments": HEAD + "f(1 2," * MANY,
    "brackets of the wrong kind": BODY + "{ x := [" + "(]" * MANY + "; }",
    "open strings": BODY + "{" + 'print "abc\n' * MANY + "}",
    "signs without meaning": "$ " * MANY,
    "listeners": BODY + "{" + "on A() {" * MANY,
    "event types": "event A {" * MANY,
    "strings of the vendor": BODY + '{ %send("eventType":"x", "fields":{' + ",".join(['"f":"("'] * 2000) + "}); }",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_broken_texts_of_any_size_are_answered_soon(text: str) -> None:
    with measured() as used, pytest.raises(QueryErrors) as caught:
        check_text(text)
    assert used.seconds < 4
    assert all(0 <= error.span.start <= error.span.end <= len(text) for error in caught.value.errors)


def test_the_text_is_not_read_further_after_a_thousand_mistakes() -> None:
    with pytest.raises(QueryErrors) as caught:
        check_text(BODY + "{" + "x y z;\n" * 1500 + "}")
    codes = [error.code for error in caught.value.errors]
    assert codes == ["syntax"] * 1000 + ["limit"]


LINES = {
    "a string": BODY + '{ print "' + "x" * 5_000_000 + '"; }',
    "spaces": BODY + " " * 5_000_000,
    "a comment": BODY + "/*" + "x" * 5_000_000 + "*/",
}


@pytest.mark.parametrize("text", LINES.values(), ids=LINES.keys())
def test_a_line_of_five_megabytes(text: str) -> None:
    with measured() as used:
        assert len(check_text(text).queries) == 1
    assert used.seconds < 4


QUERY = """query Query{} {{
    parameters {{ float period := 3.0; float least := 1.0; }}
    inputs {{
        A(y > least) key id within period wait 20 seconds;
    }}
    find A as a1 -> A as a2
        where a2.s != a1.s and a1.y < a2.y
        within 10 minutes
    {{
        print "Suspicious: " + a2.toString();
        send A(a2.id, a1.y + a2.y, "x") to "alerts";
    }}
}}
"""


def test_event_types_within_each_other_are_counted_without_being_made() -> None:
    types = "".join(
        f"event E{number} {{ {' '.join(f'E{number + 1} {field};' for field in 'abcdefgh')} }} " for number in range(15)
    )
    with pytest.raises(QueryErrors) as caught:
        check_text(types + "event E15 { integer x; } inputs { E0() within 3; } find E0 as a")
    assert "the fields of 'E12' have more than 1000 parts" in {error.message for error in caught.value.errors}


def test_too_many_event_types_are_told() -> None:
    inputs = " ".join(f"E{number}() within 3;" for number in range(30_001))
    with pytest.raises(QueryErrors) as caught:
        check_text(f"inputs {{ {inputs} }} find E0 as a")
    assert [error.message for error in caught.value.errors] == ["more than 30000 event types"]


def test_a_pattern_of_any_length_is_answered() -> None:
    with pytest.raises(QueryErrors) as caught:
        check_text("inputs { A() within 3; } find " + " -> ".join(f"A as a{number}" for number in range(20_000)))
    assert "this pattern has more than 1000 events" in {error.message for error in caught.value.errors}


NAMES = [f"someLongName{number}" for number in range(1000)]
UNKNOWN = {
    "names of a pattern": f"inputs {{ A() within 5; }} find {' -> '.join(f'A as {name}' for name in NAMES)} where "
    + " and ".join(f"{name}x.x = 1" for name in NAMES),
    "fields": f"event A {{ {' '.join(f'integer {name};' for name in NAMES)} }} inputs {{ A() within 5; }} find A as a where "
    + " and ".join(f"a.{name}x = 1" for name in NAMES),
    "event types": " ".join(f"event {name} {{ }}" for name in NAMES)
    + f" query Q {{ inputs {{ {' '.join(f'{name}x() within 5;' for name in NAMES)} }} find A as a {{ }} }}",
}


@pytest.mark.parametrize("text", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_a_thousand_unknown_names_among_a_thousand(text: str) -> None:
    with measured() as used, pytest.raises(QueryErrors) as caught:
        check_text(text)
    assert used.seconds < 3
    assert len(caught.value.errors) >= 1000
    assert caught.value.errors[0].message.endswith("; did you mean 'someLongName0'?")


def test_a_thousand_queries_in_one_file() -> None:
    text = "event A { integer id; float y; string s; }\n" + "".join(map(QUERY.format, range(1000)))
    with measured() as used:
        assert len(check_text(text).queries) == 1000
    assert used.seconds < 6

"""The canonical layout: what is printed says the same, keeps every comment, and is not changed by printing it again."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from querylang import QueryErrors
from querylang.formatter.formatting import format_text
from querylang.source import Source
from querylang.syntax.ast import Comment, File
from querylang.syntax.parser import parse
from tests.support.texts import Texts

GOLDEN = sorted((Path(__file__).parent / "fmt").glob("*.query"))


def tree(text: str) -> File:
    file, mistakes = parse(Source("case.query", text))
    assert not mistakes, f"{mistakes[0]}\n{text}"
    return file


def texts_of(comments: tuple[Comment, ...]) -> list[str]:
    return [comment.text for comment in comments]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_layout(path: Path) -> None:
    assert format_text(path.read_text()) == path.with_suffix(".out").read_text()


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_layout_stays_as_it_is(path: Path) -> None:
    expected = path.with_suffix(".out").read_text()
    assert format_text(expected) == expected


@settings(max_examples=150, deadline=None)
@given(st.integers(min_value=0), st.integers(min_value=0, max_value=5))
@example(85_538_089_454_249_074_229_248, 0)
def test_any_text_keeps_its_tree_its_comments_and_its_layout(seed: int, size: int) -> None:
    text = Texts(Random(seed), size).text()
    once = format_text(text)
    assert tree(once) == tree(text), text
    assert texts_of(tree(once).comments) == texts_of(tree(text).comments), text
    assert format_text(once) == once, text
    assert once.endswith("\n"), text
    assert not once.endswith("\n\n"), text


def test_an_event_type_behind_find_all_that_begins_with_a_dot_stays_in_brackets() -> None:
    query = "query Q { inputs { A() within 3.0; } find all { .A as a } }"
    assert "find all (.A as a)" in format_text(query)
    assert tree(format_text(query)) == tree(query)


def test_random_texts_are_long_enough_to_be_broken_everywhere() -> None:
    layouts = "\n".join(format_text(Texts(Random(seed), 4).text(with_comments=False)) for seed in range(60))
    begun = {line.split()[0] for line in layouts.splitlines() if line.startswith("    ")}
    assert begun >= {"->", "=>", "and", "or", "+", "*", "=", "where", "key", "to", ")", "]"}


DEEPEST = 199
DEEP = {
    "brackets": "a = " + "(1 - " * DEEPEST + "1" + ")" * DEEPEST,
    "calls": "f(1 + g(x), " * DEEPEST + "1" + ")" * DEEPEST,
    "indexes": "a[" * DEEPEST + "1" + "]" * DEEPEST,
    "sequences": "[" * DEEPEST + "1" + "]" * DEEPEST,
    "dictionaries": "{1: " * DEEPEST + "1" + "}" * DEEPEST,
    "conditions": "(a or (b and " * (DEEPEST // 2) + "c" + "))" * (DEEPEST // 2),
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
def test_the_deepest_legal_expressions_in_the_deepest_statements_have_a_layout(text: str) -> None:
    query = f"inputs {{ A() within 3; }} find A as a {{ {'if b { ' * 49} x := {text}; {'}' * 50}"
    once = format_text(query)
    assert without_brackets(once) == without_brackets(query)
    assert format_text(once) == once


def without_brackets(text: str) -> str:
    return "".join(sign for sign in text if sign not in " \n()")


def test_two_trees_that_differ_are_told_apart() -> None:
    assert tree("inputs { A() within 3; } find A as a") != tree("inputs { A() within 3; } find A as b")


HEAD = "inputs {\n    A() within 3;\n}\nfind A as a"
EXPRESSIONS = {
    "((a + b)) * c": "(a + b) * c",
    "a + (b * c)": "a + b * c",
    "(a - b) - c": "a - b - c",
    "a - (b - c)": "a - (b - c)",
    "-(a)": "-a",
    "-(-a)": "- -a",
    "-(a + b)": "-(a + b)",
    "not (a = b)": "not a = b",
    "(not a) = b": "(not a) = b",
    "not (a and b)": "not (a and b)",
    "(a and b) or c": "a and b or c",
    "a and (b or c)": "a and (b or c)",
    "(a or b) xor c": "(a or b) xor c",
    "(a = b) = c": "(a = b) = c",
    "(a.b).c[(3)]": "a.b.c[3]",
    "(a + b).toString()": "(a + b).toString()",
    "(new T).f()": "(new T).f()",
    "({1:2}).size()": "({1: 2}).size()",
    "[a,b,].size()": None,
    "3.toFloat()": "3.toFloat()",
    "1e3 + .50 + 1.5d": "1e3 + .50 + 1.5d",
    '"\\n\\t\\"\\\\" + "\té"': '"\\n\\t\\"\\\\" + "\\té"',
    "#find.#where": "#find.where",
    "#time.x": "time.x",
    "sequence<dictionary<string,T>>()": "sequence<dictionary<string, T>>()",
    "float . INFINITY": "float.INFINITY",
    "com.example.T(1,x)": "com.example.T(1, x)",
}


@pytest.mark.parametrize(("text", "layout"), EXPRESSIONS.items())
def test_expressions_keep_the_brackets_that_they_need(text: str, layout: str | None) -> None:
    query = f"{HEAD}\n    where {text}"
    if layout is None:
        with pytest.raises(QueryErrors):
            format_text(query)
    else:
        assert format_text(query) == f"{HEAD}\n    where {layout}\n"


PATTERNS = {
    "(A as a)": "A as a",
    "A:a->(B:b->C:c)": "A as a -> B as b -> C as c",
    "(A:a->B:b) or C:c": "(A as a -> B as b) or C as c",
    "A:a->(B:b or C:c)": "A as a -> B as b or C as c",
    "(A:a or B:b) and C:c": "(A as a or B as b) and C as c",
    "{A:a->wait(3):w}": "A as a -> wait(3) as w",
    "A():a": "A as a",
    "wait(1 min 2 sec)->.x.#query:time": "wait(1 min 2 sec) -> .x.query as time",
    "#query.a:b": "#query.a as b",
}


@pytest.mark.parametrize(("text", "layout"), PATTERNS.items())
def test_patterns_keep_the_brackets_that_they_need(text: str, layout: str) -> None:
    assert format_text(f"inputs {{ A() within 3; }} find {text}").splitlines()[3] == f"find {layout}"


COMMENTS = {
    "in a string of the vendor's editor": (
        '%send("eventType":"B",  "fields":{"x":"a.x  /* b */ + 1", "y":"a.y  + 1"});',
        '%send("eventType": "B", "fields": {"x": "a.x  /* b */ + 1", "y": "a.y + 1"});',
    ),
    "before a line": ("// c\nprint a;", "// c\nprint a;"),
    "behind a line": ("print a; // c\nprint b;", "print a; // c\nprint b;"),
    "before a semicolon": ("print a /* c */;", "print a; /* c */"),
    "within a line": ("print a /* c */ + b;", "print a /* c */ + b;"),
    "that breaks a line": ("print a // c\n+ b;", "print a // c\n    + b;"),
    "in an empty block": ("if a { /* c */ }", "if a { /* c */\n}"),
    "at the end of a block": ("if a { print b;\n\n // c\n\n }", "if a {\n    print b;\n\n    // c\n}"),
    "before else": ("if a { } // c\nelse { }", "if a {\n} // c\nelse { }"),
    "between arguments": ("f(a, // one\nb); ", "f(a, // one\n    b);"),
    "of two lines": ("/* a\n b */ print a;", "/* a\n b */ print a;"),
    "empty lines": ("print a;\n\n\n\nprint b;\nprint c;", "print a;\n\nprint b;\nprint c;"),
    "around brackets that go": ("print (/* c */ a);", "print /* c */ a;"),
}


@pytest.mark.parametrize(("text", "layout"), COMMENTS.values(), ids=COMMENTS.keys())
def test_comments_stay_where_they_are(text: str, layout: str) -> None:
    lines = "".join(f"    {line}\n" if line else "\n" for line in layout.replace("\n b */", "\0").split("\n"))
    assert format_text(f"{HEAD} {{\n{text}\n}}") == f"{HEAD} {{\n{lines}}}\n".replace("\0", "\n b */")


def test_what_cannot_be_read_has_no_layout() -> None:
    with pytest.raises(QueryErrors) as caught:
        format_text("inputs { A() within 3; } find A as\nfind A as a {", "cards.query")
    assert [str(error).split(" ")[0] for error in caught.value.errors] == ["cards.query:2:1:", "cards.query:2:13:"]


def test_what_queries_refuse_has_no_layout() -> None:
    with pytest.raises(QueryErrors) as caught:
        format_text("inputs { A() within 3; } find A as a { if a { on A() { } } die; }")
    assert [(error.code, error.span.text[:3]) for error in caught.value.errors] == [
        ("not-in-queries", "on "),
        ("not-in-queries", "die"),
    ]


def test_a_text_of_comments_alone_is_no_query() -> None:
    with pytest.raises(QueryErrors):
        format_text("// nothing\n")


def test_a_point_without_digits_behind_it_never_comes_before_a_word() -> None:
    text = "event A { float x; }\ninputs { A() within 3; }\nfind A as a where (a.x + 1.) > 2 where a.x > (2.) select (a.x - 1.) as m;"
    once = format_text(text)
    assert "a.x + 1.0 > 2" in once
    assert format_text(once) == once

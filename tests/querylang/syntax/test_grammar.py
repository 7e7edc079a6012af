"""The grammar's tables; whole files that must be legal; places of what is read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from querylang import check_text, compile_text
from querylang.source import Source
from querylang.syntax import ast
from querylang.syntax.lexer import Token
from querylang.syntax.parser import Parser, parse
from tests.support.linear import MOST, growth
from tests.support.pace import measured
from tools import parser_tables

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def built() -> object:
    return parser_tables.build()


def test_the_grammar_has_no_conflict(built: object) -> None:
    assert built.sr_conflicts == []
    assert built.rr_conflicts == []


def test_the_shipped_tables_are_those_of_the_grammar(built: object) -> None:
    hint = "run `python -m tools.parser_tables`"
    assert parser_tables.written(built) == parser_tables.SHIPPED.read_text(), hint


def test_tables_do_not_depend_on_the_order_of_hashing() -> None:
    program = "from tools import parser_tables as b; import hashlib; print(hashlib.sha1(b.written(b.build()).encode()).hexdigest())"
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


def test_one_check_as_a_process_costs_little(tmp_path: Path) -> None:
    # Modules are compiled in the first run, as for every user, whatever the environment says of bytecode.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    program = "import querylang; querylang.check_text('inputs { A() within 3; } find A as a')"
    seconds = []
    for _attempt in range(3):
        with measured() as used:
            subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, check=True)
        seconds.append(used.seconds)
    assert min(seconds) < 0.5


ACCEPTED = {
    "the smallest file": "inputs < A() within 30 wait 20 seconds; >\nfind A as a1 -> A as a2",
    "a semicolon at the end": "inputs { A() within 30; } find A as a;",
    "an empty block": "inputs { A() within 30; } find A as a { }",
    "colons for as": "inputs { A() within 30; } find A:a1 -> A:a2",
    "a query with a name": "query Q { inputs { A() within 30; } find A as a }",
    "package and using": "package a.b; using com.apama.queries.*; using a.b.C; query Q { inputs { A() within 3; } find A as a }",
    "keywords with a hash": "inputs { A() within 3; } find A as #find -> A as #where where #find.x = #where.x",
    "soft keywords as names": "inputs { A() within 3; } find A as time -> A as from -> A as to where time.x = to.x",
    "two actions": "inputs { A() within 3; } find A as a { print x(); } action x() returns string { return y(); }"
    ' action y() returns string { return ""; }',
    "comments": "// one\n/* two\n lines */ inputs { A() /* here */ within 3; } find A as a // end",
    "a point before a type": "inputs { .A() within 3; } find .A as a",
    "no line breaks": "inputs{A()within 3;}find A as a->A as b where a.x=b.x",
    "line ends of Windows": "inputs {\r\n A() within 3; // c\r\n}\r\nfind A as a",
    "a mark at the beginning": "\ufeffinputs { A() within 3; } find A as a",
}


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted(text: str) -> None:
    assert len(check_text(text).queries) == 1


def test_several_queries_in_one_file_in_text_order() -> None:
    body = "inputs { A() within 3; } find A as a"
    text = f"query Two {{ {body} }} {body} query One {{ {body} }}"
    assert [item.name for item in compile_text(text, "dir/cards.query").plan.queries] == ["Two", "cards", "One"]


@pytest.mark.parametrize("suffix", ["query", "qry"])
def test_a_bare_body_is_named_by_the_files_stem(suffix: str) -> None:
    text = "inputs { A() within 3; } find A as a"
    assert compile_text(text, f"queries/cards.{suffix}").plan.queries[0].name == "cards"


def test_both_comments_are_kept_with_their_places() -> None:
    file, _mistakes = parse(Source("x", "/* one\n*/ inputs { A() within 3; } // two  \nfind A as a"))
    assert [(item.text, item.span.line, item.span.column) for item in file.comments] == [
        ("/* one\n*/", 1, 1),
        ("// two", 2, 29),
    ]


def test_expressions_in_strings_have_their_places_in_the_string() -> None:
    text = 'inputs { A() within 3; } find A as a { %send("eventType":"A", "channel":"\\"c\\"", "fields":{"x":"\\"é\\" + a.long"}); }'
    file, mistakes = parse(Source("x", text))
    assert not mistakes
    found = file.queries[0].find
    assert isinstance(found, ast.Find)
    assert found.block is not None
    send = found.block.statements[0]
    assert isinstance(send, ast.VendorSend)
    (name, value) = send.fields[0]
    assert isinstance(value, ast.Binary)
    assert [item.span.text for item in (send.event, name, value, value.left, value.right)] == [
        "A",
        "x",
        '\\"é\\" + a.long',
        '\\"é\\"',
        "a.long",
    ]


def test_long_lists_are_read_in_linear_time() -> None:
    assert growth(lambda count: parse(Source("x", "event A { " + "float x; " * count + "}")), 2_000) < MOST


def test_an_unfinished_string_that_holds_a_query_is_broken() -> None:
    source = Source("x", '  "\\r\\"\\n')
    token = Token("STRING_LITERAL", '\\r\\"\\n', source, 2, 9)
    assert isinstance(Parser(source, [], []).expression_in(token), ast.Broken)

"""What editors are given: it is valid, complete, and colours what it should.

The grammar is made from the language's tables by `tools/editors.py`. This file has a small reader of TextMate grammars: rules
with `match` and captures, or with `begin` and `end`; the rule that matches leftmost wins, of several the first.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import querylang
from querylang.plan import library as types
from querylang.syntax import lexer
from tests.project.repository import ROOT
from tools import editors

FOLDER = ROOT / "editors" / "vscode"
PACKAGE = json.loads((FOLDER / "package.json").read_text())
GRAMMAR = json.loads(editors.GRAMMAR.read_text())

Rule = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Open:
    """A rule with an end that has not come yet."""

    scope: str
    end: str
    rules: tuple[Rule, ...]


def rules_of(patterns: list[Rule]) -> Iterator[Rule]:
    for rule in patterns:
        if "include" in rule:
            yield from rules_of(GRAMMAR["repository"][rule["include"].removeprefix("#")]["patterns"])
        else:
            yield rule


def scopes(text: str) -> list[tuple[str, str]]:
    """The pieces of a text that have a scope, with it: `.ensue` left out."""
    return [(piece, scope.removesuffix(".ensue")) for line in lines_of(text) for piece, scope in line if piece.strip()]


def lines_of(text: str) -> Iterator[list[tuple[str, str]]]:
    opened: Open | None = None
    for line in text.split("\n"):
        found, at = [], 0
        while True:
            rules = opened.rules if opened is not None else tuple(rules_of(GRAMMAR["patterns"]))
            best, rule = first_match(line, at, rules, opened)
            if best is None:
                break
            if opened is not None:
                found.append((line[at : best.start()], opened.scope))
            if rule is None:
                assert opened is not None
                found.append((best[0], opened.scope))
                opened = None
            elif "begin" in rule:
                opened = Open(rule["name"], rule["end"], tuple(rule.get("patterns", ())))
                found.append((best[0], rule["name"]))
            else:
                found += pieces(best, rule)
            at = best.end()
        if opened is not None:
            found.append((line[at:], opened.scope))
        yield found


def first_match(
    line: str, at: int, rules: tuple[Rule, ...], opened: Open | None
) -> tuple[re.Match[str] | None, Rule | None]:
    """The leftmost match and its rule; the rule None: the end of what is open."""
    candidates = [(re.compile(opened.end).search(line, at), None)] if opened is not None else []
    candidates += [(re.compile(rule.get("match", rule.get("begin"))).search(line, at), rule) for rule in rules]
    matches = [(found, rule) for found, rule in candidates if found is not None]
    return min(matches, key=lambda pair: pair[0].start(), default=(None, None))


def pieces(found: re.Match[str], rule: Rule) -> list[tuple[str, str]]:
    if "name" in rule:
        return [(found[0], rule["name"])]
    return [(found[int(group)], named["name"]) for group, named in rule["captures"].items() if found[int(group)]]


def scope_of(text: str, piece: str) -> str | None:
    """The scope of the first piece that says exactly this."""
    return dict(reversed(scopes(text))).get(piece)


def test_the_grammar_is_what_the_tables_of_the_language_say() -> None:
    assert editors.GRAMMAR.read_text() == editors.grammar_text(), "run `make docs`"


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.json")), ids=lambda path: path.name)
def test_every_file_is_json(path: Path) -> None:
    assert json.loads(path.read_text())


def test_what_the_package_names_is_there() -> None:
    contributed = PACKAGE["contributes"]
    named = [
        contributed["languages"][0]["configuration"],
        *(item["path"] for kind in ("grammars", "snippets") for item in contributed[kind]),
    ]
    assert [name for name in named if not (FOLDER / name).is_file()] == []
    assert contributed["grammars"][0]["scopeName"] == GRAMMAR["scopeName"]


def test_every_included_rule_is_there() -> None:
    assert {rule["include"].removeprefix("#") for rule in GRAMMAR["patterns"]} == GRAMMAR["repository"].keys()


def test_every_pattern_compiles() -> None:
    patterns = [rule[key] for rule in rules_of(GRAMMAR["patterns"]) for key in ("match", "begin", "end") if key in rule]
    assert len(patterns) > 20
    for pattern in patterns:
        re.compile(pattern)


@pytest.mark.parametrize("word", sorted(lexer.KEYWORDS))
def test_every_keyword_has_a_scope(word: str) -> None:
    scope = scope_of(f" {word} ", word)
    assert scope is not None
    assert scope.startswith(("keyword.", "storage.type", "constant.language"))


@pytest.mark.parametrize("unit", sorted(types.UNITS))
def test_every_unit_has_a_scope(unit: str) -> None:
    assert scope_of(f"within 30 {unit}", unit) == "keyword.other.unit"


@pytest.mark.parametrize("name", sorted(types.AGGREGATES))
def test_every_aggregate_has_a_scope(name: str) -> None:
    assert scope_of(f"select {name}(a.x)", name) == "support.function.aggregate"


@pytest.mark.parametrize("name", editors.methods())
def test_every_method_has_a_scope(name: str) -> None:
    assert scope_of(f"a.x.{name}()", name) == "support.function.method"


@pytest.mark.parametrize("level", types.LOG_LEVELS)
def test_every_level_has_a_scope(level: str) -> None:
    assert scope_of(f'log "x" at {level};', level) == "constant.language.level"


@pytest.mark.parametrize(
    ("text", "piece", "scope"),
    [
        ("// find A", "// find A", "comment.line.double-slash"),
        ("/* find\nA */ find", "A ", "comment.block"),
        ("/* find\nA */ find", "find", "keyword.control"),
        ('print "a find \\" b" + x;', "a find ", "string.quoted.double"),
        ('print "a find \\" b" + x;', '\\"', "constant.character.escape"),
        ('print "open\nfind', "find", "keyword.control"),
        ('@TimeFrom("getTime")', "@TimeFrom", "storage.type.annotation"),
        ("event Withdrawal {", "Withdrawal", "entity.name.type.event"),
        ("query Cards {", "Cards", "entity.name.type.query"),
        ("action total(A a) returns float", "total", "entity.name.function"),
        ("package com.example.cards;", "com.example.cards", "entity.name.namespace"),
        ("find Withdrawal as w1", "w1", "variable.other.definition"),
        ("find com.x.Withdrawal as w1", "com.x.Withdrawal", "entity.name.type"),
        ("Withdrawal(amount > 3)", "Withdrawal", "entity.name.type"),
        ("a.key", "key", None),
        ("string #query;", "#query", "variable.other.escaped"),
        ("1.5d", "1.5d", "constant.numeric.decimal"),
        ("1.5e3", "1.5e3", "constant.numeric.float"),
        ("x1 + 30", "30", "constant.numeric.integer"),
        ("x + 0x1F;", "0x1F", "constant.numeric.integer"),
        ("x + .5;", ".5", "constant.numeric.float"),
        ("x + 1.;", "1.", "constant.numeric.float"),
        ("1.toFloat()", "1", "constant.numeric.integer"),
        ("x1.y2", "2", None),
        ("1.5 hours", "1.5", "constant.numeric.duration"),
        ("1 min 30 sec", "sec", "keyword.other.unit"),
        ("float.INFINITY", "INFINITY", "constant.language"),
        ("sequence<float> xs", "sequence", "storage.type"),
        ("A as a -> B as b", "->", "keyword.operator.arrow"),
        ("x := 3", ":=", "keyword.operator.assignment"),
        ("not a xor b", "xor", "keyword.operator.word"),
        ("total(a, b)", "total", "entity.name.function.call"),
        ('%send("eventType":"T")', "%send", "keyword.other.vendor"),
        ("finder", "find", None),
    ],
)
def test_a_piece_has_its_scope(text: str, piece: str, scope: str | None) -> None:
    assert scope_of(text, piece) == scope


CHECKED = """query.query:2:28: unknown-unit: unknown unit of time 'secs'; did you mean 'sec'?
  2 |     inputs { A() within 30 secs; }
    |                            ^^^^
warning: b.query:3:1: idle-heartbeat: has no effect
run.yaml:7: 'sinks' is missing
2 files, no mistakes
"""


def test_the_problem_matcher_reads_what_check_prints() -> None:
    (matcher,) = PACKAGE["contributes"]["problemMatchers"]
    pattern = matcher["pattern"]
    found = [match for line in CHECKED.splitlines() if (match := re.match(pattern["regexp"], line))]
    names = ("severity", "file", "line", "column", "code")
    assert [tuple(match[pattern[name]] for name in names) for match in found] == [
        (None, "query.query", "2", "28", "unknown-unit"),
        ("warning", "b.query", "3", "1", "idle-heartbeat"),
        (None, "run.yaml", "7", None, None),
    ]


def test_the_problem_matcher_reads_what_check_prints_now(tmp_path: Path) -> None:
    (tmp_path / "a.query").write_text("inputs { A() within 30 secs; }\nfind A as a where b.x = 3\n")
    command = [sys.executable, "-m", "ensue.cli", "check", "a.query"]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    pattern = PACKAGE["contributes"]["problemMatchers"][0]["pattern"]["regexp"]
    assert [bool(re.match(pattern, line)) for line in done.stderr.splitlines()] == [True, False, False] * 2


SNIPPETS = json.loads((FOLDER / "snippets" / "ensue.json").read_text())
INPUTS = "inputs { Reading() key sensor within 10 minutes; }"
TWO = "find Reading as low -> Reading as high"
AROUND = {
    "Event type": f"<> {INPUTS} {TWO}",
    "Query": "<event> <>",
    "Inputs": f"<event> <> {TWO}",
    "Parameters": f"<event> query Q {{ <> {INPUTS} {TWO} where high.value > least }}",
    "Find every": f"<event> {INPUTS} <>",
    "Without": f"<event> {INPUTS} {TWO} <>",
}
"""Each snippet, and what it needs around it to be a file."""


@pytest.mark.parametrize("name", sorted(SNIPPETS))
def test_a_snippet_with_its_defaults_has_no_mistake(name: str) -> None:
    event, body = (filled("\n".join(SNIPPETS[key]["body"])) for key in ("Event type", name))
    assert "$" not in body
    querylang.check_text(AROUND[name].replace("<event>", event).replace("<>", body))


def filled(body: str) -> str:
    """A snippet with the default of each place put in wherever the place is meant, defaults within defaults first."""
    defaults: dict[str, str] = {}
    place = re.compile(r"\$\{(\d+)(?::([^{}]*)|\|(\w+)[^}]*\|)\}")
    while found := place.search(body):
        default = found[2] if found[2] is not None else found[3]
        defaults[found[1]] = re.sub(r"\$(\d+)", lambda name: defaults[name[1]], default)
        body = body[: found.start()] + defaults[found[1]] + body[found.end() :]
    return re.sub(r"\$(\d+)", lambda name: defaults[name[1]], body)


def test_words_of_phrases_are_keywords_only_there() -> None:
    assert scope_of("find all A as a", "all") == "keyword.control"
    assert scope_of("find all as a", "all") is None
    assert scope_of("  after match skip to last a", "after match skip to last") == "keyword.control"
    assert scope_of("where after > match", "after") is None
    assert scope_of("A() within 3 new by k within 9;", "new by") == "keyword.control"
    assert scope_of("A() key by within 3;", "by") is None
    assert scope_of("    at most 3 per 1 day by a.host", "at most") == "keyword.control"
    assert scope_of("where most > 3", "most") is None
    assert scope_of("where a.v is not null and b", "is not null") == "keyword.operator.word"
    assert scope_of("where a.is = 3", "is") is None

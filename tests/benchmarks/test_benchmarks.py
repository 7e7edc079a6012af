"""The benchmarks run; how fast is not asked here."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table

import querylang
from benchmarks import books, books_chart, everything, page, rules, why, words
from benchmarks.__main__ import PARTS
from benchmarks.duckdb_compare import QUESTIONS
from benchmarks.ordering import PAIRS
from benchmarks.patterns import PATTERNS
from querylang.plan import library
from querylang.plan.expression import Kind
from tests.project.repository import ROOT


def test_a_little_of_everything_is_measured(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks", "--small", "--json", str(figures)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    measured = json.loads(figures.read_text())
    assert [item["keys"] for item in measured["embedded"]] == [100]
    assert [item["queries"] for item in measured["many"]] == [1, 3]
    assert all(item["times"] > 0 and item["state_times"] > 0 for item in measured["many"])
    assert [(item["book"], item["queries"]) for item in measured["book-jobs"]] == [("instances", 5)]
    assert all(item["times"] > 0 and item["ratio"] > 0 for item in measured["book-jobs"])
    assert [(item["name"], item["keys"]) for item in measured["streaming"]] == [("A -> B where", 100)]
    assert all(item[name] > 0 for item in measured["latency"] for name in ("batch_ratio", "p50_ratio", "p99_ratio"))
    assert [item["name"] for item in measured["patterns"]] == [pattern.name for pattern in PATTERNS]
    assert all(item["rate"] > 0 for item in measured["patterns"])
    things = [(item["things"], item["count"]) for item in measured["everything"]]
    assert things == [(name, count) for name in everything.THINGS for count in (1, 10)]
    assert all(item["seconds"] > 0 for item in measured["everything"])
    groups = {item["group"] for item in measured["words"]}
    assert groups == {word.group for word in words.words()}
    assert all(item["rate"] > 0 and item["part"] > 0 for item in measured["words"])
    assert [item["name"] for item in measured["rules"]] == [item.name for item in rules.asked()]
    assert all(item["ratio"] > 0 for item in measured["rules"])
    assert [item["question"] for item in measured["why"]] == [*why.QUESTIONS]
    assert all(item["first"] > 0 and item["again"] > 0 and item["events"] > 0 for item in measured["why"])
    assert [item["name"] for item in measured["ordering"]] == [orderly.name for orderly, _ in PAIRS]
    assert all(item["ratio"] > 0 and 0 < item["share"] < 1 for item in measured["ordering"])
    assert all(item["batch_ms"] > 0 and item["active"] > 0 for item in measured["cold"])
    assert [item["name"] for item in measured["duckdb"]] == [question.name for question in QUESTIONS]
    assert all(item["ratio"] > 0 and item["matches"] > 0 for item in measured["duckdb"])
    assert all(item["to_matches"] > 0 and item["matches"] > 0 for item in measured["embedded"])
    assert all(item["ratio"] > 0 and item["state_bytes"] > 0 for item in measured["streaming"])
    assert [item["unit"] for item in measured["engines"]] == ["million events/s", "s", "MB"]
    assert all(item["spark"] > 0 and item["local"] > 0 for item in measured["engines"])


def test_the_chart_of_books_has_a_point_for_each_number_of_queries() -> None:
    times = {"disjoint": {1: 0.02, 10: 0.1, 1_000: 0.4}, "copies": {1: 0.2, 100: 1.4}}
    measured = [
        books.Measured(book, queries, 1_000, 0.1, seconds, 1.0, 1.0, 5, 0.5)
        for book, own in times.items()
        for queries, seconds in own.items()
    ]
    lines = re.findall(r'<polyline points="([^"]+)"', books_chart.chart(measured))
    assert [len(line.split()) for line in lines] == [3, 2]
    places = [[tuple(map(float, point.split(","))) for point in line.split()] for line in lines]
    assert all(sorted(own) == own and sorted(own, key=lambda place: -place[1]) == own for own in places)
    assert places[0][0][0] == places[1][0][0], "one query is at one place"


def test_the_page_has_a_place_for_the_figures_of_each_part(tmp_path: Path) -> None:
    copy = tmp_path / "page.md"
    copy.write_text((ROOT / "docs" / "benchmarks.md").read_text("utf-8"), encoding="utf-8")
    for part in PARTS:
        table = Table("keys", part)
        table.add_row("10,000", "7")
        page.put(copy, f"make bench, {part}", page.markdown(table))
    text = copy.read_text("utf-8")
    assert all(f"| keys | {part} |\n| --- | --- |\n| 10,000 | 7 |\n{page.END}" in text for part in PARTS)
    with pytest.raises(ValueError, match="has no place for figures of make bench, nothing"):
        page.put(copy, "make bench, nothing", "")


def test_each_word_of_the_language_is_in_a_query_that_passes_the_check() -> None:
    named = {word.name.partition(" of ")[0].partition("(")[0].strip() for word in words.words()}
    asked = [method for method in library.METHODS if method.result is not None]
    # Values that are events are asked for their fields instead.
    assert named >= {method.name for method in asked if tuple(method.kinds) != (Kind.EVENT,)}
    assert named >= {*library.AGGREGATES, *library.BINARY_OPERATORS, *library.UNARY_OPERATORS}
    for word in words.words():
        querylang.compile_text(word.query)

"""Books for other systems: their files mean what the queries say, differences are refused, and the table shows what was measured."""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.feather
import pytest

from benchmarks import books, page
from benchmarks.peers import book_figures
from benchmarks.peers.__main__ import main
from benchmarks.peers.book_figures import Answers, BookTaken, answers_of, refuse_differences
from benchmarks.peers.one_book import one_pass
from benchmarks.peers.rule_books import KINDS, BookFiles, checksum, write_book

Row = tuple[int, int, int, int, float, list[str]]
"""Number, type, key, code, number and texts of an event."""

_WITHIN = 60_000


def _rows(files: BookFiles) -> list[Row]:
    """The events as the Java systems read them."""
    values = files.values.read_text("utf-8").splitlines()
    data = files.records.read_bytes()
    count, _, fields = np.frombuffer(data, "<i4", 3)
    layout = [("kind", "<i4"), ("key", "<i4"), ("code", "<i4"), ("number", "<f8"), ("texts", "<i4", (int(fields),))]
    records = np.frombuffer(data, np.dtype(layout), count, 12)
    return [
        (
            row,
            int(each["kind"]),
            int(each["key"]),
            int(each["code"]),
            float(each["number"]),
            [values[n] for n in each["texts"]],
        )
        for row, each in enumerate(records)
    ]


def _admits(rule: Mapping[str, Any]) -> Callable[[Row], bool]:
    field, values = rule.get("field", 0), rule.get("values", [])
    tests: dict[str, Callable[[Row], bool]] = {
        "equal": lambda row: row[5][field] == values[0],
        "list": lambda row: row[5][field] in values,
        "like": lambda row: values[0] in row[5][field],
        "range": lambda row: row[4] > rule["least"],
        "lengths": lambda row: len(row[5][field]) + len(row[5][rule["other"]]) > 46,
        "codes": lambda row: row[3] in (rule["first"], rule["second"]),
    }
    return lambda row: row[1] == rule["kind"] and tests[rule["condition"]](row)


def _found(rule: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[tuple[int, ...]]:
    """The matches of a rule by trying all events of a key, as its line of JSON says it."""
    by_key = defaultdict[int, list[Row]](list)
    for row in filter(_admits(rule), rows):
        by_key[row[2] if rule["form"] != "single" else 0].append(row)
    for own in by_key.values():
        match rule["form"]:
            case "single":
                yield from ((row[0],) for row in own)
            case "threshold":
                fifths = zip(own, own[4:], strict=False)
                yield from ((last[0],) for first, last in fifths if last[0] - first[0] < _WITHIN)
            case "sequence":
                chosen = (each for each in combinations(own, rule["steps"]) if each[-1][0] - each[0][0] < _WITHIN)
                yield from (tuple(row[0] for row in each) for each in chosen if each[0][5][0] == each[1][5][0])
            case _:
                pairs = ((a, b) for a, b in combinations(own, 2) if b[0] - a[0] < _WITHIN and b[4] > a[4] + 0.9)
                yield from ((a[0], b[0]) for a, b in pairs if (a[3], b[3]) == (rule["first"], rule["second"]))


@pytest.mark.parametrize(("kind", "count", "events"), [("disjoint", 3, 3_000), ("rules", 190, 3_000)])
def test_queries_and_files_of_a_book_say_the_same(kind: str, count: int, events: int, tmp_path: Path) -> None:
    files = write_book(tmp_path, kind, count, events, keys=6)
    rows = _rows(files)
    rules = [json.loads(line) for line in files.rules.read_text("utf-8").splitlines()]
    answer = one_pass(files, pyarrow.feather.read_table(str(files.table)))
    expected = [list(_found(rule, rows)) for rule in rules]
    assert answer["matches"] == [len(found) for found in expected]
    assert answer["checksums"] == [
        str(checksum(list(np.array(found, np.int64).T)) if found else 0) for found in expected
    ]
    forms = {rule["form"] for rule, found in zip(rules, expected, strict=True) if found}
    assert forms == ({"pair"} if kind == "disjoint" else {"single", "threshold", "sequence"})


def test_a_checksum_of_a_rule_depends_on_every_event_and_not_on_the_order_of_matches() -> None:
    first, second = np.arange(5), np.arange(10, 15)
    whole = checksum([first, second])
    assert checksum([first[::-1], second[::-1]]) == whole
    assert checksum([first, second[::-1]]) != whole
    assert checksum([second, first]) != whole
    assert checksum([first]) != checksum([second])


def test_the_first_rule_of_which_systems_differ_is_named() -> None:
    one = {"matches": [1, 2], "checksums": ["7", "8"]}
    refuse_differences({"ensue": one, "esper": dict(one)})
    with pytest.raises(AssertionError, match=r"rule 1: ensue has found \(2, '8'\), siddhi \(2, '9'\)"):
        refuse_differences({"ensue": one, "siddhi": one | {"checksums": ["7", "9"]}})


def test_what_needs_too_much_time_or_memory_is_missing() -> None:
    assert answers_of([sys.executable, "-c", "while True: pass"], limit=1) == Answers((), "more than 0 minutes")
    heap = "import sys; sys.exit('java.lang.OutOfMemoryError: heap')"
    assert answers_of([sys.executable, "-c", heap]) == Answers((), "more than 4 GB of memory")
    with pytest.raises(RuntimeError, match="broken"):
        answers_of([sys.executable, "-c", "import sys; sys.exit('broken')"])
    late = "import sys; print('{\"a\": 1}'); sys.exit('OutOfMemoryError')"
    assert answers_of([sys.executable, "-c", late]) == Answers([{"a": 1}])


def test_figures_of_a_book_replace_those_before(tmp_path: Path) -> None:
    (tmp_path / "benchmarks.md").write_text(f"{page.begin(book_figures.COMMAND)}\nold\n{page.END}\n")
    target = tmp_path / "figures.json"
    rules = BookTaken("rules", 10, "ensue", 200_000, 0.05, 0.5, 0.6, 10**9, 1349)
    book_figures.write(target, None, [rules, BookTaken("disjoint", 10, "siddhi", 200_000, 1.0, 9.0, 9.0, 10**9, 7)])
    missing = BookTaken("disjoint", 10, "siddhi", 200_000, missing="more than 5 minutes")
    book_figures.write(target, tmp_path, [missing])
    text = (tmp_path / "benchmarks.md").read_text()
    assert "| rules | 10 | Ensue | 0.05 s | 0.50 s | 0.60 s | 400,000 | 1,000 MB | 1,349 |" in text
    assert "| disjoint | 10 | Siddhi 5.1 | | more than 5 minutes | | | | |" in text
    assert "9.00" not in text
    assert "old" not in text


def test_a_book_that_there_is_not_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["peers", "--book", "rules:11"])
    with pytest.raises(SystemExit):
        main()
    assert "one of rules:10, rules:100" in capsys.readouterr().err


def test_books_of_both_kinds_are_measured() -> None:
    assert {kind for kind, _ in book_figures.BOOKS} == set(KINDS)


def test_a_larger_book_begins_with_the_rules_of_a_smaller_one() -> None:
    assert books.drawn(30)[1][:10] == books.drawn(10)[1]

"""The systems that need no Java answer the same; the table and the chart show what was measured."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import page
from benchmarks.peers import pages
from benchmarks.peers.__main__ import QUESTIONS, Question, measure
from benchmarks.peers.answers import Measured
from benchmarks.peers.stream import checksum


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_ensue_and_duckdb_answer_the_same(question: Question, tmp_path: Path) -> None:
    """`measure` refuses answers that differ."""
    systems = [
        system for system in question.systems if system.startswith(("ensue", "duckdb")) and system != "ensue-spark"
    ]
    found = measure(tmp_path, question, systems, threads=[1], events=150_000, rounds=1)
    assert [item.system for item in found] == systems
    assert found[0].matches > 100


def test_slow_systems_answer_over_a_tenth(tmp_path: Path) -> None:
    systems = ["duckdb-sliced", "duckdb-window"]
    found = measure(tmp_path, QUESTIONS[0], systems, [1], events=150_000, rounds=1, slow=["duckdb-window"])
    assert [item.events for item in found] == [150_000, 15_000]
    assert 0 < 5 * found[1].matches < found[0].matches


def test_a_checksum_depends_on_every_match_and_not_on_their_order() -> None:
    first, second = np.arange(5), np.arange(10, 15)
    whole = checksum(first, second)
    assert checksum(first[::-1], second[::-1]) == whole
    assert checksum(first[1:], second[1:]) != whole
    assert checksum(first, second[::-1]) != whole


def test_the_docs_get_table_and_chart(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "benchmarks.md").write_text(f"before\n{page.begin(pages.COMMAND)}\nold\n{page.END}\nafter\n")
    figures = [
        Measured("light", system, threads, 1000, 7, (rate, rate / 2, 3 * rate))
        for system, threads, rate in (("ensue", 1, 4e6), ("ensue", 2, 7e6), ("esper", 2, 1e6))
    ]
    pages.write(tmp_path, figures)
    text = (tmp_path / "benchmarks.md").read_text()
    assert "| Ensue, embedded | 4.00 | 7.00 |" in text
    assert "| Esper 9 |  | 1.00 |" in text
    assert "old" not in text
    assert text.startswith("before")
    assert text.endswith("after\n")
    assert (tmp_path / "images" / "peers.svg").read_text().count("<rect") == 4

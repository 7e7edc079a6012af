"""Tables beside the stream: random tables, streams and queries, against brute force over all events and rows."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ensue
from ensue import executors
from ensue.data_options import DataOptions
from ensue.embedded import read
from runtime.replay import replay_records
from tests.support.lookup_cases import Case, contents, every, of_results, two_steps, wanted


def in_pieces(case: Case, chance: random.Random, folder: Path) -> Counter[str]:
    """Open queries with the rows cut anywhere, saved and restored; each time the tables are read again."""
    live = ensue.open(case.text, tables=case.tables)
    matches: list[Any] = []
    outputs: list[Any] = []
    rows, answers = list(case.rows), []
    while rows:
        size = chance.randrange(1, 8)
        answers.append(live.send(rows[:size]))
        rows = rows[size:]
        matches += answers[-1].match_objects()
        outputs += answers[-1].output_objects()
        if chance.random() < 0.4:
            live.save(folder / "state", overwrite=True)
            live = ensue.open(case.text, state=folder / "state", tables=case.tables)
    answer = live.flush()
    return contents(case, matches + answer.match_objects(), outputs + answer.output_objects())


def cases(request: pytest.FixtureRequest, first: int) -> list[Case]:
    count: int = max(24, request.config.getoption("--streams") // 4)
    return [two_steps(first + seed) if seed % 4 else every(first + seed) for seed in range(count)]


def test_every_way_of_running_gives_what_the_oracle_finds(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for number, case in enumerate(cases(request, 4_000_000)):
        expected = wanted(case)
        ready = read(case.text, case.rows, DataOptions(tables=case.tables))
        assert of_results(case, ready.replay().results) == expected, case.text
        assert of_results(case, replay_records(ready.plan, ready.records, matcher="reference")) == expected, case.text
        assert in_pieces(case, random.Random(number), tmp_path) == expected, case.text
        seen["found"] += expected.total() > 0
        seen["errors"] += expected["error"]
    assert seen["found"] > 8
    assert seen["errors"] > 2


def test_workers_give_the_same(request: pytest.FixtureRequest) -> None:
    chosen = cases(request, 4_100_000)[:16]
    ready = [read(case.text, case.rows, DataOptions(tables=case.tables)) for case in chosen]
    jobs = [
        executors.Job(item.plan, item.records, True, executors.even_splits(len(case.rows), 3))
        for item, case in zip(ready, chosen, strict=True)
    ]
    for case, results in zip(chosen, executors.local(jobs), strict=True):
        assert of_results(case, results) == wanted(case), case.text

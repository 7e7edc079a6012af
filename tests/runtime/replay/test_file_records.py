"""Files that are read while they are processed give the answer of all records in memory."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
import querylang
from querylang.errors import InputError
from runtime.replay import records, replay
from runtime.replay.records import FileRecords
from runtime.replay.replay import measured_replay, read_all, read_records

EVENTS = "event A { integer id; string k; float v; }\nevent B { integer id; string k; float v; }\n"
INPUTS = "inputs { A() key k within 9.0 wait 2.0; B() key k within 9.0 wait 2.0; }"
PLAIN = f"query Q {{ {INPUTS} find A as a -> B as b where b.v > a.v }}"
BLOCK = f"query P {{ {INPUTS} find A as a -> B as b where b.v > a.v {{ print a.k + b.id.toString(); }} }}"
EVERY = f"query E {{ {INPUTS} find every A as a select count() as n having count() > 3 }}"
TRAILING = f"query T {{ {INPUTS} find A as a -> B as b -> wait(1.5) as t }}"
PLAN = querylang.compile_text(f"{EVENTS}{PLAIN}\n{BLOCK}\n{EVERY}\n{TRAILING}").plan


def table(count: int = 1_000, seed: int = 5) -> pa.Table:
    """Late and unknown rows are among them, rows without a key, empty ones, several at a moment."""
    random = np.random.default_rng(seed)
    at = 100 + np.sort(random.integers(0, count * 5, count)) // 20 / 5
    kinds = random.choice(["A", "B", "C", None], count, p=[0.48, 0.48, 0.02, 0.02])
    return pa.table(
        {
            "at": pa.array(at, pa.float64()),
            "event": pa.array(kinds, pa.string()),
            "ts": at - random.random(count) * 3,
            "id": np.arange(count),
            "k": pa.array(random.choice([*"abcdefgh", None], count), pa.string()),
            "v": random.random(count),
        }
    )


def written(folder: Path, *tables: pa.Table) -> list[Path]:
    paths = [folder / f"{number}.parquet" for number in range(len(tables))]
    for path, rows in zip(paths, tables, strict=True):
        pq.write_table(rows, path, row_group_size=400)
    return paths


def shown(given: Any, **options: Any) -> dict[str, Any]:
    results, figures = measured_replay(PLAN, given, **options)
    tables = {**results.matches, "outputs": results.outputs, "discarded": results.discarded, "ledger": results.ledger}
    plain = {name: found.to_pylist() for name, found in tables.items() if found is not None}
    return {**plain, "figures": figures.to_pylist(), "warnings": given.warnings, "count": len(given)}


def without_ranks(answer: dict[str, Any]) -> dict[str, Any]:
    """All but the column that only orders the matches of one key and step of a call."""
    return {
        name: [{key: cell for key, cell in row.items() if key != "_rank"} for row in rows]
        if isinstance(rows, list)
        else rows
        for name, rows in answer.items()
    }


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are read in pieces as well."""
    monkeypatch.setattr(records, "LEAST", 1)
    monkeypatch.setattr(records, "ROWS_AT_ONCE", 150)
    monkeypatch.setattr(replay, "CHUNK", 130)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("threads", ["1", "4"])
@pytest.mark.parametrize("options", [{}, {"flush": False}, {"until": 160_000_000}])
def test_the_answer_is_that_of_all_records_in_memory(
    threads: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = written(tmp_path, *(table(seed=seed) for seed in range(2)))
    given = read_records(paths, PLAN)
    assert isinstance(given, FileRecords)
    monkeypatch.setenv("ENSUE_THREADS", threads)
    found = without_ranks(shown(given, **options))
    monkeypatch.setenv("ENSUE_THREADS", "1")
    assert found == without_ranks(shown(read_all(paths, PLAN), **options))
    assert all(found[query.title] for query in PLAN.queries)


def changed(rows: pa.Table, name: str, values: list[Any]) -> pa.Table:
    position = rows.schema.get_field_index(name)
    return rows.set_column(position, name, pa.array(values, rows.schema.field(name).type))


def not_sorted() -> pa.Table:
    return table().take(np.random.default_rng(1).permutation(1_000))


def without_first_arrivals() -> pa.Table:
    return changed(table(), "at", [None] * 400 + table().column("at").to_pylist()[400:])


def with_control_event() -> pa.Table:
    names = table().column("event").to_pylist()
    return changed(table(), "event", [*names[:600], "com.apama.queries.SetDelayedEventsLeeway(1.0, 1.0)", *names[601:]])


def with_strange_times() -> pa.Table:
    times = table().column("ts").to_pylist()
    return changed(table(), "ts", [*times[:600], 9e9, 9e9, *times[602:]])


def with_offsets_of_its_own() -> pa.Table:
    offsets = np.concatenate([np.arange(1, 501), np.random.default_rng(1).permutation(500)])
    return table().append_column("offset", pa.array(offsets))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("threads", ["1", "4"])
@pytest.mark.parametrize(
    "rows", [not_sorted, without_first_arrivals, with_control_event, with_strange_times, with_offsets_of_its_own]
)
def test_what_cannot_be_read_in_pieces_is_read_at_once(
    rows: Any, threads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = written(tmp_path, rows())
    monkeypatch.setenv("ENSUE_THREADS", threads)
    given = read_records(paths, PLAN)
    assert without_ranks(shown(given)) == without_ranks(shown(read_all(paths, PLAN)))
    row_of, own = given.row_of(), read_all(paths, PLAN).row_of()
    places = zip(
        *(given.arrivals.table.column(name).to_pylist() for name in ("_source", "_partition", "_offset")), strict=True
    )
    assert all(row_of(*place) == own(*place) for place in places)


@pytest.mark.usefixtures("small")
def test_a_replay_shows_all_that_it_shows_of_records_in_memory(tmp_path: Path) -> None:
    rows = table(100)
    (path,) = written(tmp_path, rows)
    (tmp_path / "q.query").write_text(EVENTS + PLAIN, encoding="utf-8")
    found, expected = (ensue.replay(tmp_path / "q.query", given) for given in (path, rows))
    assert isinstance(found.records, FileRecords)
    assert found.summary() == expected.summary()
    assert [match["match_id"] for match in found.match_objects()] != []
    assert [own["members"] for own in plain_rows(found)] == [own["members"] for own in plain_rows(expected)]
    assert len(found.steps) == len(expected.steps)


def plain_rows(result: Any) -> list[dict[str, Any]]:
    """Matches; their members without the name of the source."""
    return [
        {**own, "members": {name: {**member, "source": ""} for name, member in own["members"].items()}}
        for own in result.match_objects()
    ]


@pytest.mark.usefixtures("small")
def test_a_file_that_changes_is_not_mixed_with_its_replay(tmp_path: Path) -> None:
    (path,) = written(tmp_path, table())
    given = read_records([path], PLAN)
    shown(given)
    given.row_of()
    written(tmp_path, table(100))
    assert isinstance(given, FileRecords)
    with pytest.raises(InputError, match=r"0\.parquet: has changed since the replay began; replay it again"):
        given.whole()


@pytest.mark.usefixtures("small")
def test_other_processes_get_the_records(tmp_path: Path) -> None:
    given = read_records(written(tmp_path, table()), PLAN)
    assert shown(pickle.loads(pickle.dumps(given))) == shown(read_all(written(tmp_path, table()), PLAN))


@pytest.mark.usefixtures("small")
def test_a_mistake_in_a_later_piece_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = written(tmp_path, table())
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 2_000] = b"\xff" * 2_000
    path.write_bytes(content)
    monkeypatch.setenv("ENSUE_THREADS", "2")
    with pytest.raises(InputError, match=r"0\.parquet: cannot be read as a table"):
        measured_replay(PLAN, read_records([path], PLAN))

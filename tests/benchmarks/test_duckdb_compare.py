"""What is compared is the same: the engine and both forms of SQL find the same events."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from benchmarks.duckdb_compare import QUESTIONS, Question, ours, theirs, write_table


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
@pytest.mark.parametrize("form", ["join", "window", "sliced"])
def test_engine_and_sql_find_the_same_events(question: Question, form: str, tmp_path: Path) -> None:
    """Over 45 seconds, so that the window of 30 matters."""
    path = tmp_path / "history.parquet"
    write_table(path, count=150_000, keys=5_000)
    with duckdb.connect(config={"threads": 1}) as connection:
        answer = theirs(connection, question.sql[form], path)
    found = ids(ours(question.plan, path).column("members").combine_chunks())
    assert found == sorted(zip(*(answer.column(place).to_pylist() for place in range(len(found[0]))), strict=True))
    assert len(found) > 10_000


def ids(members: pa.StructArray) -> list[tuple[int, ...]]:
    """The row numbers of each match's events."""
    return sorted(zip(*(event.field("fields").field("id").to_pylist() for event in members.flatten()), strict=True))

"""What users write, with annotations: `test_typing.py` lets mypy check it, and never runs it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import ensue

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def embedded(folder: Path) -> pd.DataFrame:
    queries: ensue.Queries = ensue.load(folder / "cards.query")
    result: ensue.Replay = ensue.replay(queries, "cards.csv", ordering="stream_analytics late=5s", flush=False)
    ensue.replay(queries, "cards.csv", until=datetime(2024, 3, 1, tzinfo=UTC))
    names: tuple[str, ...] = queries.names
    text: str = result.account() + result.summary() + result.table() + names[0]
    frames: list[pd.DataFrame] = [result.outputs, result.discarded, result.ledger, result.matches_of("Q")]
    page: Path = result.report(folder / "cards.html")
    rows: int = len(result.steps) + len(result.match_objects())
    return result.matches if text and frames and page.name and rows else result.metrics


def incremental(state: Path) -> int:
    live: ensue.Live = ensue.open("cards.query", state=state)
    answer: ensue.Answer = live.send([{"at": 1.0, "n": 1}])
    due: datetime | None = live.next_due
    if due is not None:
        answer = live.advance(due)
    live.save(state, overwrite=True)
    return len(answer) + len(live.flush().matches)


def on_spark(session: SparkSession, frame: DataFrame) -> StreamingQuery:
    matches: DataFrame = ensue.match(frame, "cards.query", flat=True)
    batch: ensue.Batch = ensue.batch({"cards": frame}, "cards.query")
    found: DataFrame = batch.matches["Q"].union(matches)
    stream: DataFrame = ensue.stream(session.readStream.parquet("in"), "cards.query", idle="1 minute")
    streams: ensue.Streams = ensue.streams(stream, "cards.query")

    def take(batch: ensue.Batch) -> None:
        batch.outputs.write.mode("append").parquet(f"out/{batch.id}")

    found.show()
    return streams.write(take, checkpoint="state", trigger="availableNow")


def deployed(path: Path) -> bool:
    job = ensue.deploy(path)
    ended: bool = job.await_termination(60.0)
    job.stop()
    return ended


def mistakes() -> list[str]:
    try:
        ensue.load("cards.query")
    except ensue.QueryErrors as error:
        return [mistake.code for mistake in error.errors]
    except ensue.InputError as error:
        return [str(error)]
    return [ensue.__version__]

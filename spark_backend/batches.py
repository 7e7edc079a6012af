"""All results of queries as typed DataFrames: of a micro-batch, or of bounded DataFrames.

The classes are public names of Ensue, so they are there without PySpark, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from job_engine.wire.tagged_rows import Tag
from querylang.dataclass import dataclass, field
from querylang.errors import InputError, nearest
from querylang.plan.model import Plan
from runtime.policies.settings_text import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


AVAILABLE_NOW = "availableNow"
"""The trigger that processes what is there, and ends."""

METRICS = "ensue"
"""The name of what is counted in `observedMetrics`."""


class Matches(Mapping[str, "DataFrame"]):
    """By query: its matches as a DataFrame, with the columns of `ensue.match`."""

    def __init__(self, tagged: DataFrame, plan: Plan, *, is_flat: bool) -> None:
        self._tagged, self._plan, self._is_flat = tagged, plan, is_flat

    def __getitem__(self, query: str) -> DataFrame:
        """query: a name, or the title of one instance: `Name/instance`."""
        titles = [item.title for item in self._plan.queries if query in (item.name, item.title)]
        if not titles:
            meant = nearest(query, list(self))
            raise InputError(
                f"there is no query {query!r}; "
                + (f"did you mean {meant!r}?" if meant else f"there are {', '.join(self)}")
            )
        return _decode(self._tagged, self._plan, Tag.MATCH, *titles, is_flat=self._is_flat)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(item.name for item in self._plan.queries))

    def __len__(self) -> int:
        return len(list(iter(self)))


@dataclass(frozen=True)
class Batch:
    """All results of a micro-batch, or of bounded DataFrames. Its rows are kept by Spark.

    id: number of the micro-batch: the same again if it is repeated; 0 for bounded DataFrames
    """

    id: int
    _tagged: DataFrame
    _plan: Plan
    _is_flat: bool = False
    _is_bounded: bool = True
    _tables: set[str] = field(default_factory=set, repr=False)

    @cached_property
    def matches(self) -> Matches:
        """By query: its matches, a DataFrame with the columns of `ensue.match`."""
        return Matches(self._tagged, self._plan, is_flat=self._is_flat)

    @cached_property
    def outputs(self) -> DataFrame:
        """One row per print, send and error; the columns of a replay's `outputs`."""
        return _decode(self._tagged, self._plan, Tag.OUTPUT)

    @cached_property
    def discarded(self) -> DataFrame:
        """One row per discarded record, with the reason; the columns of a replay's `discarded`."""
        return _decode(self._tagged, self._plan, Tag.DISCARDED, is_flat=True)

    @cached_property
    def ledger(self) -> DataFrame:
        """What became of the records: `query`, `source`, `what`, `count`; changes, not totals."""
        from pyspark.sql import functions as f

        rows = _decode(self._tagged, self._plan, Tag.LEDGER)
        counts = rows.groupBy("query", "source", "what").agg(f.sum("count").alias("count"))
        return counts.where("count <> 0")

    def write_delta(self, frame: DataFrame, table: str | Path, *, partition_by: Sequence[str] = ()) -> bool:
        """Append a DataFrame of this micro-batch to a Delta table, exactly once.

        A micro-batch that is repeated finds itself in the table, and writes nothing: then this is
        False. Tasks write the rows, and one commit shows them. Needs `pip install 'ensue[delta]'`.

        frame: any DataFrame made of this batch's
        table: a local or mounted folder, which is made if there is none
        partition_by: `day`, which is that of `time`, and columns of text

        Raises InputError, for a table that has got something of this micro-batch before, too.
        """
        from spark_backend.batch_drafts import write_delta

        name = os.path.realpath(table)
        if name in self._tables:
            raise InputError(f"{table}: this micro-batch has been written there already; write the union of both")
        self._tables.add(name)
        columns = [partition_by] if isinstance(partition_by, str) else list(partition_by)
        return write_delta(frame, table, columns, None if self._is_bounded else self.id)

    def write_kafka(self, frame: DataFrame, topic: str, options: Mapping[str, str]) -> bool:
        """Send the rows of a DataFrame of this micro-batch to a topic of Kafka, exactly once.

        Values are JSON objects, `key` is the message's key, too, and the header `ensue-id` tells
        messages apart. All are one transaction, with the number of the micro-batch. One that is
        repeated finds its number there, sends nothing, and gives False. Needs `ensue[kafka]`.

        frame: any DataFrame made of this batch's
        topic: its name; it has to exist
        options: those of a sink of a job, such as `{"kafka.bootstrap.servers": "localhost:9092"}`

        Raises InputError, for a topic that has got something of this micro-batch before, too.
        """
        from spark_backend.batch_drafts import write_kafka

        name = f"kafka://{options.get('kafka.bootstrap.servers')}/{topic}"
        if name in self._tables:
            raise InputError(f"{topic}: this micro-batch has been written there already; write the union of both")
        self._tables.add(name)
        return write_kafka(frame, topic, options, None if self._is_bounded else self.id)

    def unpersist(self) -> None:
        """Let Spark drop the rows; for a micro-batch it happens when the function returns."""
        self._tagged.unpersist()

    def __repr__(self) -> str:
        return f"<Batch {self.id}: matches of {', '.join(self.matches)}>"


def _decode(tagged: DataFrame, plan: Plan, tag: Tag, *titles: str, is_flat: bool = False) -> DataFrame:
    from spark_backend.frames import decode

    return decode(tagged, plan, tag, *titles, is_flat=is_flat)


def batch_of(tagged: DataFrame, plan: Plan, *, is_flat: bool) -> Batch:
    """The results of bounded DataFrames: found at the first look, then kept."""
    return Batch(0, tagged.persist(), plan, is_flat)


def counted(tagged: DataFrame) -> DataFrame:
    """The same rows; Spark counts them by kind in the `observedMetrics` of each micro-batch."""
    from pyspark.sql import functions as f

    kinds = {"matches": Tag.MATCH, "outputs": Tag.OUTPUT, "errors": Tag.ERROR, "discarded": Tag.DISCARDED}
    rows = [
        f.coalesce(f.sum(f.when(f.col("kind") == str(tag), f.col("rows"))), f.lit(0)).alias(name)
        for name, tag in kinds.items()
    ]
    return tagged.observe(METRICS, *rows)


@dataclass(frozen=True)
class Streams:
    """The results of streaming DataFrames, to be written; see `ensue.streams`.

    ends: whether a bounded trigger ends, because time does not advance without records
    """

    _tagged: DataFrame
    _plan: Plan
    _ends: bool
    _is_flat: bool = False

    def write(
        self,
        function: Callable[[Batch], object],
        *,
        checkpoint: str,
        trigger: str | None = None,
        name: str | None = None,
    ) -> StreamingQuery:
        """Start the streaming query, which calls a function with each micro-batch.

        function: gets a `Batch`. A micro-batch that was interrupted is repeated with the same `id`
        checkpoint: the folder of Spark's state, for this query only
        trigger: `availableNow`, or a time between micro-batches such as `10 seconds`; None = as
            fast as possible
        name: of the query in Spark's displays; None = none

        Raises InputError.
        """
        if not callable(function):
            raise InputError(f"write: expected a function that takes a `Batch`; found {function!r}")
        writer = self._tagged.writeStream.outputMode("append").option("checkpointLocation", str(checkpoint))
        writer = writer if name is None else writer.queryName(name)
        if trigger == AVAILABLE_NOW:
            self._refuse_endless()
            writer = writer.trigger(availableNow=True)
        elif trigger is not None:
            writer = writer.trigger(processingTime=f"{_milliseconds(trigger)} milliseconds")
        return writer.foreachBatch(self._call(function)).start()

    def _call(self, function: Callable[[Batch], object]) -> Callable[[DataFrame, int], None]:
        def call(tagged: DataFrame, number: int) -> None:
            kept = tagged.persist()
            try:
                kept.count()  # all buckets work, whatever the function looks at
                function(Batch(number, kept, self._plan, self._is_flat, _is_bounded=False))
            finally:
                kept.unpersist()

        return call

    def _refuse_endless(self) -> None:
        if not self._ends:
            raise InputError(
                f"trigger: {AVAILABLE_NOW!r} does not end while time advances without records; leave out `idle`, and"
                " an ordering policy or clock that advances time by itself"
            )


def _milliseconds(trigger: object) -> int:
    length = parse_duration(trigger) if isinstance(trigger, str) else None
    if length is None:
        raise InputError(f"trigger: expected {AVAILABLE_NOW!r} or a duration such as '10 seconds'; found {trigger!r}")
    return length // 1000

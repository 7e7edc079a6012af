"""Run the demo: three queries over a year of real flights, embedded, as a job here, and on Spark.

`python -m ensue.demo` runs in a clone and writes below `build/demo`. Its exit code is 1 if the
ways of running have different results, or if something is missing.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

import ensue
from ensue.demo import picture
from ensue.demo.flights import EventTables, write_event_tables
from ensue.rendering.text_table import text_table
from job_engine.job.job import run as run_deployment
from job_engine.job.reports import BatchReport, RunReport
from querylang.errors import EnsueError, InputError
from runtime.results.ledger import WORDS
from runtime.results.schemas import Results

# Compare the results of the replay with those of a job.
#
# Every column counts: members, times, when a match was definitive and why it had to wait.

Totals = Mapping[tuple[str, str], int]
"""Counts by query and word of the ledger."""
ReadTable = Callable[[Path], pa.Table]
"""Reads the table in a folder."""


def replay_totals(results: Results) -> Totals:
    """The accounts of a replay, over all sources."""
    totals: Counter[tuple[str, str]] = Counter()
    for row in results.ledger.to_pylist():
        totals[row["query"], row["what"]] += row["count"]
    return {place: count for place, count in totals.items() if count}


def job_totals(ledger: Mapping[tuple[str, str, str], int]) -> Totals:
    """The accounts of a job (by query, source and word), over all sources."""
    totals: Counter[tuple[str, str]] = Counter()
    for (query, _, what), count in ledger.items():
        totals[query, what] += count
    return {place: count for place, count in totals.items() if count}


def differences(results: Results, folder: Path, read: ReadTable = pyarrow.parquet.read_table) -> Iterator[str]:
    """How the matches of a replay differ from those in the job's sink, a line per query."""
    for query, table in results.matches.items():
        ours, theirs = _embedded(table), _written(folder / query, table.schema, read)
        if ours.equals(theirs):
            continue
        ids, other = set(ours["match_id"].to_pylist()), set(theirs["match_id"].to_pylist())
        missing, extra = len(ids - other), len(other - ids)
        reason = f"{missing} missing in the job, {extra} in the job only" if missing or extra else "some columns differ"
        yield f"{query}: {len(ours)} embedded, {len(theirs)} in the job; {reason}"


def _embedded(table: pa.Table) -> pa.Table:
    """A replay's table as the sinks write it: one column per member, ordered by identity."""
    members = table["members"].combine_chunks()
    plain = table.drop_columns(["members", "_step", "_rank"])
    for place, field in enumerate(members.type):
        plain = plain.append_column(field.name, members.field(place))
    return plain.sort_by("match_id").combine_chunks()


def _written(folder: Path, schema: pa.Schema, read: ReadTable) -> pa.Table:
    empty = _embedded(schema.empty_table())
    if not folder.exists():
        return empty
    return read(folder).select(empty.column_names).cast(empty.schema).sort_by("match_id").combine_chunks()


QUERIES = Path("queries/flights")
FOLDER = Path("build/demo")
MOST_ROWS = 5


def main() -> int:
    """Run the demo; gives the exit code."""
    try:
        return _run()
    except EnsueError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _run() -> int:
    tables = _prepare()
    replay = _replay(tables.files)
    _heading("3  On this machine: the same queries as a job, in micro-batches, without Spark")
    local = _job("local.yaml")
    _heading("4  On Spark: the same job as a streaming query")
    spark = _job("flights.yaml")
    ours = replay_totals(replay.results)
    found = [
        f"{name}: {text}"
        for name, report in (("local", local), ("spark", spark))
        for text in _told(replay, ours, name, report)
    ]
    _print_ledger(ours)
    _print_striking(replay)
    _draw(replay, FOLDER / "aircraft-day.svg")
    return _conclude(found, len(replay.matches))


def _prepare() -> EventTables:
    if not QUERIES.is_dir():
        raise InputError(f"{QUERIES}: no such folder; the demo runs in a clone of the repository")
    shutil.rmtree(FOLDER, ignore_errors=True)
    _heading("1  The records")
    tables = write_event_tables(FOLDER / "events")
    print(
        f"{tables.flights:,} flights from New York in 2013 and {tables.weather:,} hours of weather, as {len(tables.files)}"
        f" Parquet files in {FOLDER / 'events'}.\nA flight is reported when it has landed, so departures arrive late and"
        f" out of order by hours.\n{tables.cancelled:,} flights were cancelled, {tables.diverted:,} diverted,"
        f" {tables.without_tail:,} have no tail number; all of them are included."
    )
    return tables


def _replay(files: Sequence[Path]) -> ensue.Replay:
    _heading("2  Embedded: the queries over the files, in this process")
    started = time.perf_counter()
    ensue.replay(QUERIES, files[:1])
    seconds = time.perf_counter() - started
    print(f"kernels ready in {seconds:.1f} s (the first time on a machine they are compiled)", flush=True)
    started = time.perf_counter()
    replay = ensue.replay(QUERIES, files)
    seconds = time.perf_counter() - started
    records = len(replay.records.rows)
    rate = f"{records / seconds:,.0f} records/s through {len(replay.plan.queries)} queries, reading included"
    print(f"{records:,} records in {seconds:.1f} s: {rate}")
    for query, table in replay.results.matches.items():
        print(f"  {query:14} {len(table):6,} matches")
    return replay


def _told(replay: ensue.Replay, ours: Totals, name: str, report: RunReport) -> Iterator[str]:
    """How the results of a job differ from the replay's."""
    yield from differences(replay.results, FOLDER / name / "matches")
    theirs = job_totals(report.ledger)
    if ours != theirs:
        yield f"ledger: {sorted(set(ours.items()) ^ set(theirs.items()))}"


def _job(file: str) -> RunReport:
    reports: list[BatchReport] = []

    def show(batch: BatchReport) -> None:
        reports.append(batch)
        matches = sum(batch.matches.values())
        what = f"{batch.records:7,} records, {matches:5,} matches" if batch.records else "the end: all timers run"
        print(f"  micro-batch {batch.batch}: {what}, {batch.seconds:.1f} s", flush=True)

    report = run_deployment(QUERIES / file, once=True, flush=True, progress=show)
    warm = [batch for batch in reports[1:] if batch.records]
    rate = sum(batch.records for batch in warm) / sum(batch.seconds for batch in warm)
    print(f"{report.records:,} records in {report.seconds:.1f} s; {rate:,.0f} records/s after the first micro-batch")
    return report


def _print_ledger(totals: Totals) -> None:
    _heading("5  The ledger: what became of every record")
    queries = list(dict.fromkeys(query for query, _ in totals))
    rows = []
    for word in WORDS:
        counts = [totals.get((query, word), 0) for query in queries]
        if any(counts):
            rows.append([word, *(f"{count:,}" if count else "" for count in counts)])
    print(text_table(["", *queries], rows, right=frozenset(queries)))
    print("null_time: cancelled; null_key: cancelled, without a tail number; late: too long in the air for its wait.")


def _print_striking(replay: ensue.Replay) -> None:
    _heading("6  What was found")
    found = {query.name: picture.matches_of(replay, query.name) for query in replay.plan.queries}
    _print_table(
        "Delays that an aircraft kept at its next departure", picture.carried_table(found["CarriedDelay"], MOST_ROWS)
    )
    _print_table(
        "Three departures of one aircraft, each later than the one before",
        picture.snowball_table(found["Snowball"], MOST_ROWS),
    )
    _print_table(
        "Hours of fog or storm, and the flights that they delayed", picture.storm_table(found["Storm"], MOST_ROWS)
    )


def _print_table(title: str, table: str) -> None:
    print(f"{title}\n\n{table}\n")


def _draw(replay: ensue.Replay, file: Path) -> None:
    file.write_text(picture.draw(picture.worst_day(picture.matches_of(replay, "Snowball"), FOLDER / "events")))
    print(f"The worst of these days, drawn: {file}")


def _conclude(found: Sequence[str], matches: int) -> int:
    _heading("7  Embedded = local = Spark?")
    for line in found:
        print(line)
    if found:
        print("The ways of running do not agree.")
        return 1
    print(f"Yes: the same {matches:,} matches, in every column, and the same ledger.")
    return 0


def _heading(text: str) -> None:
    print(f"\n{text}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())

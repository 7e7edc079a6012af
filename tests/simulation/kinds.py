"""The kinds of jobs in simulated worlds: how often each is drawn, what may fail in its lives, and its files."""

from __future__ import annotations

import random
from enum import StrEnum
from pathlib import Path

from tests.differential.patterns import random_queries
from tests.simulation.delta import sinks_of, table_job
from tests.simulation.faults import CRASHES, Fault
from tests.simulation.stores import BUCKET
from tests.simulation.topics import chained_topic_job, topic_job
from tests.simulation.world import World
from tests.support.scenario import query_text
from tests.torture.chained import chained_deployment
from tests.torture.deployments import cells_of
from tests.torture.project import SINKS, write_project
from tests.torture.streams import Row, Source, random_sources

MOODS: tuple[frozenset[Fault], ...] = (
    frozenset(Fault),
    frozenset(CRASHES),
    frozenset({Fault.POWER_BEFORE, Fault.POWER_AFTER}),
    frozenset({Fault.FULL, Fault.BROKEN, Fault.SHORT}),
    frozenset({Fault.LATE, Fault.DEATH, Fault.SHORT}),
)
"""What may happen in one life of a process."""

FOCUSES = (
    *("local/run", "local/buckets", "operator/", "sources/listing", "sources/folder", "sources/topics", "kafka_broker"),
    *("sinks/folder", "sinks/topics", "job/stages", "job/upkeep", "job/history", "job/checkpoint", "batch_writer"),
)
"""Modules that alone may fail in some lives: at others, what comes late in a life is seldom reached."""

FOCUSES_OF_LOSSES = ("local/run_log", "local/run_log", "sources/folder/reading", "local/pool")
"""The same, where files are removed: what is written down and not read yet is there for a moment only."""

FOCUSES_OF_TABLES = ("delta_", "delta_", "delta_publishing", "sinks/table", "sources/table", "local/run")
"""The same, of jobs over tables."""

MOODS_OF_TABLES = (*MOODS, frozenset({Fault.OTHER, Fault.LOST, Fault.LATE}))
"""The same, for jobs over tables."""

MOODS_OF_STORES = (
    *(frozenset(Fault), frozenset(CRASHES)),
    *(frozenset({Fault.AWAY, Fault.LOST, Fault.LATE}), frozenset({Fault.LOST}), frozenset({Fault.LOST, *CRASHES})),
)
"""The same, for jobs whose files are in a store."""


class Kind(StrEnum):
    """What a job reads and asks."""

    FILES = "three queries with waits over files, a control stream"
    QUERIES = "random queries over files"
    TOPICS = "three queries with waits over topics"
    CHAINS = "random queries over files that feed each other"
    CHAINED_TOPICS = "random queries over topics that feed each other"
    DELTA = "three queries with waits over tables of Delta"
    LOOKUPS = "three queries with waits over files, and a table beside them whose file is replaced"
    STORES = "three queries with waits over files in a store, which sinks and checkpoint may be in, too"


FOCUSES_OF = {
    Kind.DELTA: FOCUSES_OF_TABLES,
    Kind.LOOKUPS: (*FOCUSES, *("job/lookup_files",) * 6, "table_files", "wire/plan_text"),
}
"""The same, by the kind of job."""

HISTORIES = {Kind.CHAINS: 0.4, Kind.CHAINED_TOPICS: 0.4} | dict.fromkeys(
    (Kind.FILES, Kind.QUERIES, Kind.TOPICS, Kind.DELTA, Kind.STORES, Kind.LOOKUPS), 0.3
)
"""How often queries of a kind of job are deployed with history."""

WITH_PAST = 0.3
"""In so many of these, where the job reads files, histories begin with a table of earlier records."""

FORGETTING = dict.fromkeys((Kind.FILES, Kind.TOPICS, Kind.DELTA, Kind.STORES, Kind.LOOKUPS), 0.3)
"""How often a kind of job is let forget a key: those whose queries all have the same one."""

SETTING = 0.4
"""In so many worlds with chains, queries have parameters, which changes set, and instances."""

EDITING = dict.fromkeys((Kind.FILES, Kind.TOPICS, Kind.LOOKUPS, Kind.CHAINS, Kind.CHAINED_TOPICS), 0.3)
"""How often the query file of a kind of job is edited between two runs."""

LOSING = 0.2
"""In so many worlds with plain files, some are removed before they are read."""

SHARES = {Kind.FILES: 2, Kind.TOPICS: 1, Kind.QUERIES: 1, Kind.CHAINS: 3}
"""How often a kind of job is drawn."""

OF_TOPICS = (Kind.TOPICS, Kind.CHAINED_TOPICS)

INSTEAD = {Kind.DELTA: 0.1, Kind.STORES: 0.05, Kind.CHAINED_TOPICS: 0.1, Kind.LOOKUPS: 0.1}
"""So many worlds have a job of another kind instead: one over tables costs as much as three others."""


def deployment(chooser: random.Random, world: World, seed: int, kind: Kind) -> tuple[Path, list[Source]]:
    """Write a job without files; gives its deployment file, and its sources with the rows that are to come."""
    folder = world.folder
    if kind in (Kind.FILES, Kind.STORES, Kind.LOOKUPS):
        # a change takes over at the furthest time that was read, a replay at that of all that had arrived
        sources = random_sources(chooser, chooser.choice((8, 25, 60)), ahead=0)
        path = write_project(chooser, folder, sources)
        text = path.read_text("utf-8") + "engine: local\n"
        if kind is Kind.STORES:
            world.store.put(f"{BUCKET}/in/other", b"")
            for source in sources:
                text = text.replace(f"path: {source.name},", f"path: s3://{BUCKET}/in/{source.name},")
            text = text.replace("path: out/", f"path: s3://{BUCKET}/out/")
            text = text.replace(
                "checkpoint: state", chooser.choice(("checkpoint: state", f"checkpoint: s3://{BUCKET}/state"))
            )
        path.write_text(text, "utf-8")
        return path, sources
    if kind is Kind.TOPICS:
        return topic_job(chooser, world.broker, folder)
    if kind is Kind.CHAINED_TOPICS:
        return chained_topic_job(chooser, world.broker, folder)
    if kind is Kind.DELTA:
        return table_job(chooser, world.scheduler.now, folder)
    if kind is Kind.CHAINS:
        tables = random.Random(f"tables {seed}")
        sinks = sinks_of(tables) if tables.random() < 0.2 else SINKS
        return chained_deployment(chooser, folder, "local", sinks)
    scenarios = random_queries(seed, chooser.choice((1, 1, 2)))
    names = chooser.sample(["a", "B", "c c", "d-1"], chooser.choice((1, 1, 2)))
    sources = [Source(name, "json", None, []) for name in names]
    for number, row in scenarios[0].ordered()[: chooser.choice((10, 40))]:
        chooser.choice(sources).rows.append(Row(number, row.at, cells_of(scenarios, number, row)))
    (folder / "case.query").write_text(query_text(scenarios), encoding="utf-8")
    lines = ["name: case", "queries: [case.query]", "engine: local", "sources:"]
    for source in sources:
        (folder / source.name).mkdir()
        files = f"{{maxFilesPerTrigger: {chooser.choice((1, 1, 2, 3))}, recursiveFileLookup: true}}"
        lines.append(f"  {source.name}: {{format: json, path: {source.name}, options: {files}}}")
    lines += [SINKS, f"buckets: {chooser.choice((1, 2, 5))}", "checkpoint: state"]
    path = folder / "case.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path, sources

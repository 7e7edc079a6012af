"""Random queries that feed each other, as jobs whose files are cut at random and that are killed at random moments.

In some of them queries are deployed with history meanwhile.

`python -m tests.torture.chained --cases 20 --engine local`
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import querylang
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.setting_keys import Engine
from tests.support.books import KEYS, Row, a_query, book, divided, rows, values, with_parameters
from tests.torture.answers import deployed_at, from_their_place_on, replayed, without_changes, written
from tests.torture.project import SINKS
from tests.torture.streams import SECOND, Source, write_next
from tests.torture.streams import Row as Record
from tests.torture.victims import ROOT, WAYS, Victim, finished


def chained_records(chooser: random.Random) -> tuple[str, list[Row]]:
    """The text of queries that feed each other, and what sources bring, in order of arrival.

    In half of them what is routed stays in its bucket; in a third heartbeats are routed, too.
    """
    shared = chooser.choice(KEYS) if chooser.random() < 0.5 else None
    program = book(chooser, shared, has_beats=chooser.random() < 0.3)
    given: list[Row] = []
    for _ in range(chooser.choice((1, 3, 6))):
        begin = given[-1]["at"] if given else 0
        given += [row | {"at": row["at"] + begin} for row in rows(chooser, program.from_sources)]
    return program.text, given


def chained_deployment(
    chooser: random.Random, folder: Path, engine: str, sinks: str = SINKS
) -> tuple[Path, list[Source]]:
    """Write a job without files; gives its deployment file, and its sources with the rows that are to come."""
    text, given = chained_records(chooser)
    names = chooser.sample(["a", "B", "c c", "d-1"], chooser.choice((1, 1, 2)))
    sources = [Source(name, "json", None, []) for name in names]
    for number, row in enumerate(given):
        chooser.choice(sources).rows.append(Record(number, row["at"] * SECOND, row))
    (folder / "case.query").write_text(text, encoding="utf-8")
    lines = ["name: case", "queries: [case.query]", f"engine: {engine}", "sources:"]
    for source in sources:
        (folder / source.name).mkdir()
        files = f"{{maxFilesPerTrigger: {chooser.choice((1, 1, 2, 3))}, recursiveFileLookup: true}}"
        lines.append(f"  {source.name}: {{format: json, path: {source.name}, source_time: ts, options: {files}}}")
    lines += [sinks, f"buckets: {chooser.choice((1, 2, 5))}", "checkpoint: state"]
    path = folder / "case.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path, sources


def give_parameters(path: Path) -> None:
    """Let queries of a deployment have parameters where they had constants."""
    file = path.with_suffix(".query")
    types, *texts = re.split(r"^(?=query )", file.read_text("utf-8"), flags=re.MULTILINE)
    file.write_text(types + "".join(map(with_parameters, texts)), encoding="utf-8")


def chained_change(path: Path) -> Callable[[random.Random], str]:
    """Chooses control events that begin, replace or end a query of a deployment, or set its parameters, if any has."""
    types, *texts = re.split(r"^(?=query )", path.with_suffix(".query").read_text("utf-8"), flags=re.MULTILINE)
    queries = {text.split()[1]: text for text in texts}
    has_beats, has_parameters = "event B1 " in types, any("{ parameters" in text for text in texts)

    def change(chooser: random.Random) -> str:
        name = chooser.choice([*queries])
        match chooser.randrange(12 if has_parameters else 6):
            case 6 | 7 | 8 | 9 | 10:
                own = values(chooser, queries[name])
                return json.dumps({"SetParameters": [name, chooser.choice(("", "eu", "us")), own]})
            case 11:
                return json.dumps({"RemoveInstance": [name, chooser.choice(("", "eu", "us"))]})
            case 0 | 1:
                return json.dumps({"UndeployQuery": [name]})
            case 2 | 3:
                return json.dumps({"DeployQuery": [types + queries[name]]})
            case kind:
                taken = max(map(int, re.findall(r"E(\d)\(", queries[name].partition("find")[0])))
                text = queries[name]
                if kind == 4:  # with another key the query may come to other buckets, or be refused
                    key = None if chooser.random() < 0.5 else chooser.choice(KEYS)
                    text = a_query(chooser, name, taken, key, has_beats=has_beats)
                    text = with_parameters(text) if has_parameters else text
                return json.dumps({"ReplaceQuery": [types + text]})

    return change


def write_all(chooser: random.Random, folder: Path, sources: list[Source], longest: int) -> None:
    """Write what is left of all sources, in files of at most so many records."""
    for source in sources:
        while path := write_next(chooser, folder / source.name, source, longest):
            at = 1_600_000_000 + len(source.files)
            os.utime(path, (at, at))


def check(folder: Path, seed: int, engine: Engine, kills: int) -> list[str]:
    """Run one deployment that is killed, to its end; how it differs from a replay, a line each."""
    chooser = random.Random(seed)
    path, sources = chained_deployment(chooser, folder, engine)
    for source in sources:  # inputs of many micro-batches, some of which are there before the first start
        write_all(chooser, folder, [source], max(1, len(source.rows) // chooser.choice((4, 12, 30))))
    found, later = [], set_aside(chooser, folder) if chooser.random() < 0.6 else frozenset[str]()
    for _ in range(kills):
        if later and chooser.random() < 0.5:
            deploy_later(chooser, path)
        victim = Victim.start(path, engine=engine)
        batches = _begun(folder) + chooser.choice((0, 1, 1, 2, 4))
        limit = time.monotonic() + (60 if engine is Engine.SPARK else 15)
        while victim.is_running and _begun(folder) < batches and time.monotonic() < limit:
            time.sleep(0.005)
        time.sleep(chooser.choice((0.0, 0.01, 0.1, 0.5)))
        if later and chooser.random() < 0.5:
            deploy_later(chooser, path)
        if victim.is_running:
            found += victim.kill(chooser.choice(WAYS[engine]))
        victim.end()
    code = finished(path, engine, 600)
    if code:
        return [*found, f"the last run ended with exit code {code}: {(folder / 'run.log').read_text()[-2000:]}"]
    given, place = written(folder / "out"), deployed_at(folder / "out")
    if place is None:
        return [*found, *without_changes(given).differences(replayed(path.with_suffix(".query"), sources, []))]
    wanted = from_their_place_on(replayed(folder / "whole.query", sources, []), later, place)
    return [*found, *without_changes(given).differences(wanted)]


def set_aside(chooser: random.Random, folder: Path) -> frozenset[str]:
    """Leave out queries of a deployment that are to be deployed with history; their names."""
    text = (folder / "case.query").read_text("utf-8")
    types, *texts = re.split(r"^(?=query )", text, flags=re.MULTILINE)
    later = divided(querylang.compile_text(text).plan, chooser)
    own = [[item.rstrip() for item in texts if (item.split()[1] in later) is is_later] for is_later in (False, True)]
    if not own[0]:
        own[0].append("query Z { inputs { E0() key h within 9.0; } find E0 as a -> E0 as b }")
    for name, some in (("case", own[0]), ("later", own[1]), ("whole", own[0] + own[1])):
        (folder / f"{name}.query").write_text("\n".join([types.rstrip(), *some, ""]), encoding="utf-8")
    return frozenset(later)


def deploy_later(chooser: random.Random, path: Path) -> None:
    """Deploy with history what was set aside, by a command that may be killed; a job that has read nothing does not."""
    checkpoint = path.with_name("state")
    if not (checkpoint / "ensue.json").exists() or JobFolder(checkpoint).last_progress().furthest is None:
        return
    command = [sys.executable, "-m", "ensue.cli", "deploy", path, path.with_name("later.query"), "--from", "start"]
    with path.with_name("deploy.log").open("ab") as log, suppress(subprocess.TimeoutExpired):
        seconds = chooser.choice((1.0, 1.5, 2.0, 3.0, 120.0, 120.0))
        subprocess.run([*command, "--no-wait"], stdout=log, stderr=log, cwd=ROOT, timeout=seconds, check=False)


def _begun(folder: Path) -> int:
    """How many micro-batches the log of a job has had."""
    return max((int(path.name) + 1 for path in (folder / "state/offsets").glob("[0-9]*")), default=0)


def main() -> int:
    """Runs what the arguments say; prints one line of figures."""
    parser = argparse.ArgumentParser(prog="chained", description=__doc__)
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=5, help="in each case")
    parser.add_argument("--engine", type=Engine, choices=list(Engine), default=Engine.LOCAL, help="what runs the jobs")
    given = parser.parse_args()
    started, wrong = time.monotonic(), 0
    for seed in range(given.seed, given.seed + given.cases):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
            found = check(Path(temporary), seed, given.engine, given.kills)
        wrong += bool(found)
        for line in found:
            print(f"seed {seed}: {line[:2000]}", flush=True)
    seconds = time.monotonic() - started
    print(
        f"chained: {given.cases} jobs killed {given.kills} times each on {given.engine}, {wrong} differ from a replay,"
        f" {seconds:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

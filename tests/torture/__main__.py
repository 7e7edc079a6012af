"""`make torture`: kill a job many times while records and control events arrive; compare it with a replay.

Prints one line of figures. Ends with exit code 1 if the results differ, or if a reader saw something that may not be.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from job_engine.job.upkeep.results import compact_job
from job_engine.setting_keys import Engine
from tests.torture.answers import Control, replayed, written
from tests.torture.changes import Changes, change_of_tables, random_change, write_control
from tests.torture.compaction import Compactor
from tests.torture.project import write_project
from tests.torture.readers import ConcurrentReader
from tests.torture.streams import SECOND, Source, random_sources, write_next
from tests.torture.victims import WAYS, Victim, finished, left_over

FILES_PER_KILL = 20
"""At least so many files per kill, so that a job has work until the last one."""

PACES = {Engine.SPARK: 1.0, Engine.LOCAL: 0.2}
"""How long a job needs for what it does, beside one on Spark."""


@dataclass(slots=True)
class Figures:
    """What a torture has seen."""

    kills: int = 0
    late_kills: int = 0
    runs: int = 0
    records: int = 0
    files: int = 0
    controls: int = 0
    matches: int = 0
    scans: int = 0
    compactions: int = 0
    compacted: int = 0
    changes: int = 0
    problems: tuple[str, ...] = ()

    def line(self, seed: int, seconds: float) -> str:
        """For people."""
        return (
            f"torture: seed {seed}: {self.kills} kills ({self.late_kills} in or behind a micro-batch) in {self.runs} runs, {self.records} records in {self.files} files,"
            f" {self.controls} control events, {self.matches} matches, {self.scans} reads of all sinks,"
            f" {self.changes} changes of queries, {self.compactions} compactions killed, {self.compacted} files compacted,"
            f" {len(self.problems)} problems, {seconds:.0f} s"
        )


@dataclass(slots=True)
class _Moment:
    """When a job is killed: `seconds` after now, or after the micro-batch that brings their number to `batches`."""

    state: Path
    seconds: float
    batches: int | None
    limit: float
    began: float

    @staticmethod
    def random(chooser: random.Random, state: Path, limit: float, pace: float) -> _Moment:
        """Two of five in the first seconds or while the job starts, the others around a later micro-batch."""
        now = time.monotonic()
        match chooser.randrange(5):
            case 0:
                return _Moment(state, chooser.uniform(0, 3) * pace, None, now + limit, now)
            case 1:
                return _Moment(state, chooser.uniform(3, 25) * pace, None, now + limit, now)
        batches = _planned(state) + chooser.choice((1, 1, 2, 3, 5))
        return _Moment(state, chooser.uniform(0, 4) * pace, batches, now + limit, now)

    def has_come(self) -> bool:
        """Whether it is time. The seconds begin when the driver has planned the micro-batch."""
        now = time.monotonic()
        if self.batches and _planned(self.state) >= self.batches:
            self.batches, self.began = 0, now
        return now > self.limit or (not self.batches and now - self.began >= self.seconds)

    def wait(self, seconds: float) -> None:
        """Sleep for these seconds, or until the moment comes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.has_come():
            time.sleep(0.02)


def _planned(state: Path) -> int:
    """How many micro-batches the driver's offset log has had."""
    return max((int(path.name) + 1 for path in (state / "offsets").glob("[0-9]*")), default=0)


def torture(
    folder: Path,
    *,
    kills: int,
    seed: int,
    rows: int,
    longest_life: float = 120.0,
    compacts: bool = False,
    change_rate: float = 0.0,
    engine: Engine = Engine.SPARK,
    sink: str = "parquet",
) -> Figures:
    """Kill a job `kills` times, let it end, and compare; every random choice comes from `seed`.

    compacts: files of sinks are compacted meanwhile, by processes that are killed, too
    change_rate: changes of the queries per file that arrives
    engine: what runs the job
    sink: the format of its sinks
    """
    chooser = random.Random(seed)
    # a job takes over at the furthest time that it has read, a replay at the furthest of all that arrived before
    sources = random_sources(chooser, rows, ahead=0 if change_rate else SECOND)
    deployment = write_project(chooser, folder, sources, sink)
    controls: list[Control] = []
    figures, found = Figures(records=rows), list[str]()
    longest = max(1, rows // (max(1, kills) * FILES_PER_KILL))
    compactor = Compactor(deployment, seed)
    changes = Changes(deployment, change_of_tables if sink == "delta" else random_change)
    compacting = compactor if compacts else nullcontext()
    with ConcurrentReader(folder / "out", is_compacted=compacts, sink=sink) as reader, compacting:
        while figures.kills < kills:
            figures.runs += 1
            victim = Victim.start(deployment, engine=engine)
            while victim.is_running and figures.kills < kills:
                moment = _Moment.random(chooser, folder / "state", longest_life, PACES[engine])
                for _ in _live(chooser, folder, sources, controls, victim, moment, longest, PACES[engine]):
                    if chooser.random() < change_rate:
                        changes.send(chooser)
                if victim.is_running:
                    figures.kills += 1
                    figures.late_kills += moment.batches == 0
                    # Behind the kill of a worker the job continues, or stops in order.
                    found += victim.kill(chooser.choice(WAYS[engine]))
            victim.end()
        for source in sources:
            while write_next(chooser, folder / source.name, source, rows):
                pass
        figures.runs += 1
        code = finished(deployment, engine, 900)
    figures.files = sum(len(source.files) for source in sources)
    figures.controls, figures.scans = len(controls), reader.scans
    found += [*reader.problems, *compactor.problems]
    if engine is Engine.LOCAL:
        found += [f"{path} was left" for path in left_over(folder / "tmp")]
        found += [line for line in (folder / "run.log").read_text().splitlines() if "a failure of Ensue itself" in line]
    figures.compactions = compactor.kills
    figures.compacted = compactor.replaced
    if compacts and not code:
        compact_job(deployment)
    if code:
        found.append(f"the last run ended with exit code {code}: {(folder / 'run.log').read_text()[-2000:]}")
    else:
        changed, wrong = changes.controls()
        figures.changes = len(changes.sent)
        answer = written(folder / "out", sink)
        expected = replayed(folder / "torture.query", sources, [*controls, *changed])
        figures.matches = expected.matches.total()
        found += [*wrong, *answer.differences(expected)]
    figures.problems = tuple(found)
    return figures


def _live(
    chooser: random.Random,
    folder: Path,
    sources: list[Source],
    controls: list[Control],
    victim: Victim,
    moment: _Moment,
    longest: int,
    pace: float,
) -> Iterator[None]:
    """Write files and control events at random moments while a job runs, until a moment comes; yields behind each."""
    while victim.is_running and not moment.has_come():
        moment.wait(chooser.uniform(0, 2) * pace)
        waiting = [source for source in sources if source.is_waiting]
        if not waiting:
            moment.limit = min(moment.limit, time.monotonic() + 5)  # no micro-batch will come any more
            continue
        source = chooser.choice(waiting)
        write_next(chooser, folder / source.name, source, longest)
        if chooser.random() < 0.05:
            write_control(chooser, folder / "control", sources, controls)
        yield


def main() -> int:
    """Runs what the arguments say."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep everything there")
    parser.add_argument("--compact", action="store_true", help="compact the sinks meanwhile")
    parser.add_argument("--changes", type=float, default=0.0, help="changes of the queries per file that arrives")
    parser.add_argument("--engine", type=Engine, choices=list(Engine), default=Engine.SPARK, help="what runs the job")
    parser.add_argument("--sink", choices=("parquet", "delta"), default="parquet", help="the format of its sinks")
    given = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = given.folder or Path(temporary) / ("job" if given.sink == "delta" else "job [x] a*b")
        folder.mkdir(parents=True)
        figures = torture(
            folder,
            kills=given.kills,
            seed=given.seed,
            rows=given.rows,
            compacts=given.compact,
            change_rate=given.changes,
            engine=given.engine,
            sink=given.sink,
        )
    print(figures.line(given.seed, time.monotonic() - started))
    for problem in figures.problems:
        print(f"  {problem}")
    return 1 if figures.problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""The stories of simulated worlds as real runs: the same jobs, arrivals, commands and checks, on this machine's disk.

Each life is a process of its own, with workers of its own or with Spark, and is killed at a moment that is drawn. What
is right in a simulated world and wrong here is a mistake of that world, or of the product in what it leaves out.

`python -m tests.simulation.real --seeds 100`, `--engine spark`
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, cast

from job_engine.job.job import deploy
from querylang import errors
from tests.simulation.faults import Aim, Fault
from tests.simulation.jobs import FIRST_DATE, Less, Story, Telling
from tests.simulation.kinds import SHARES, Kind
from tests.torture.streams import Source, write_next

if TYPE_CHECKING:
    from tests.simulation.world import World

PACE = 0.1
"""Of simulated seconds: how long a real wait takes."""

LONGEST = {"local": 2.5, "spark": 25.0}
"""Seconds: the latest kill after the start of a process, and how long one may run before it is stopped."""

HANGS = 120.0
"""Seconds: a process that takes longer hangs."""


class Kills:
    """What stands for the faults of a simulated world: kills only."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.rate = 0.0
        self.count = 0
        self.aim: Aim | None = None
        self.muted: frozenset[int] = frozenset()

    def begin(self, rate: float, _: frozenset[Fault]) -> None:
        """A life begins, in which it may be killed."""
        self.rate = rate

    def focus(self, _: str) -> None:
        """A life is killed wherever it is."""


class NoBroker:
    """These jobs have no topics, and no store."""

    topics: dict[str, object] = {}  # noqa: RUF012  it stays empty
    has_just_begun = False

    def is_away(self) -> bool:
        """As `Broker.is_away`."""
        return False

    def come_back(self) -> None:
        """As `Broker.come_back`."""


class Beside(BaseException):
    """The process has ended, and with it what was done beside it."""


class Pace:
    """What stands for the scheduler of a simulated world: real time, faster."""

    def __init__(self) -> None:
        self.skew = 0.0
        self.ended = Event()

    def wait(self, _: Callable[[], bool], seconds: float) -> None:
        """Wait as long, or until the process has ended."""
        if self.ended.wait(seconds * PACE):
            raise Beside

    def start(self, _: Callable[[], object], name: str) -> None:
        """Other commands come between two lives."""

    @contextmanager
    def outside(self) -> Iterator[None]:
        """As `Scheduler.outside`."""
        yield


class Machine:
    """This machine and the processes of a job; stands for a simulated `World`."""

    def __init__(self, seed: int, folder: Path, engine: str) -> None:
        self.folder, self.engine = folder, engine
        self.chooser = random.Random(f"world {seed}")
        self.faults, self.broker, self.scheduler = Kills(), NoBroker(), Pace()
        self.store = NoBroker()
        self.lives = self.steps = 0
        self.beside: Callable[[], None] | None = None
        self._kills = random.Random(f"kills {seed}")

    def live(self, do: Callable[[], object]) -> bool:
        """A life of a process that does it; True = it was not killed. Raises what it raises."""
        self.lives += 1
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            _do_and_exit(do, writing)
        os.close(writing)
        killed, self.scheduler.ended = Event(), Event()
        own = Thread(target=self._kill_later, args=(child, killed, self.scheduler.ended), daemon=True)
        own.start()
        try:
            if self.beside is not None:
                self.beside()
        except Beside:
            pass
        with open(reading, "rb") as file:
            said = file.read()  # ends with the process and all that it has started
        os.waitpid(child, 0)
        self.scheduler.ended.set()
        own.join()
        if not said:
            if not killed.is_set():
                raise RuntimeError("a process ended without a word, and nobody killed it")
            return False
        name, text = json.loads(said)
        if name:
            raise _error(name, text)
        return True

    def _kill_later(self, child: int, killed: Event, ended: Event) -> None:
        dies = self._kills.random() < (0.6 if self.faults.rate else 0.0)
        moment = self._kills.uniform(0.02, LONGEST[self.engine]) if dies else HANGS
        started = time.monotonic()
        while time.monotonic() - started < moment:
            if ended.wait(0.01) or not _runs(child):
                ended.set()
                return
        self.faults.count += 1
        self.faults.said.append(f"killed after {moment:.2f} s" if dies else "hangs")
        killed.set()
        os.killpg(child, signal.SIGKILL)
        ended.set()


def _error(name: str, text: str) -> Exception:
    known = next((kind for kind in _below(errors.EnsueError) if kind.__name__ == name), RuntimeError)
    if known.__str__ is not Exception.__str__:  # it is made of more than its text
        known = errors.InputError
    error = known.__new__(known, text)
    Exception.__init__(error, text)
    return error


def _below(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for own in kind.__subclasses__():
        yield from _below(own)


def _runs(child: int) -> bool:
    state = Path(f"/proc/{child}/stat")
    try:
        return state.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _do_and_exit(do: Callable[[], object], writing: int) -> None:
    """Of the child: what it says is the name and text of the error that it ended with, or nothing of both."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # its warnings are those of any job
    said: Sequence[str] = ("", "")
    try:
        do()
    except BaseException as error:  # noqa: BLE001  whatever it is, the parent reports it with its seed
        known = isinstance(error, errors.EnsueError)
        said = (type(error).__name__, str(error) if known else "".join(traceback.format_exception(error)[-12:]))
    finally:
        os.write(writing, json.dumps(said).encode())
        os._exit(0)


class RealTelling(Telling):
    """A story that really happens."""

    def __init__(self, story: Story, machine: Machine, kind: Kind) -> None:
        super().__init__(story, cast("World", machine), kind, Less(), has_histories=True)
        self._machine, self._until = machine, 0.0
        self._losses, self._is_lossy = None, False  # what a process has read is known in that process alone
        text = self._path.read_text("utf-8").replace("engine: local", f"engine: {machine.engine}")
        # whoever has read a table of Delta cannot fork any more
        text, self._tables = (
            re.sub(r"format: delta(, partition_by: \w+)?, path: (?!tables)", "format: parquet, path: ", text),
            [],
        )
        # a first file of unknown types only, and one type that is asked for: what `event` is has to be said
        self._path.write_text(
            re.sub(r"(?m)^(  .*path: [^ ,]+, )(?=source_time|options)", r"\1type: event, ", text), "utf-8"
        )

    def _life(
        self, do: Callable[[], object], *, is_last: bool = False, refuses: Callable[[str], bool] | None = None
    ) -> bool:
        self._machine.beside = self._arrivals if do == self._runs else None
        self._until = self._chooser.choice((0.3, 1.0)) * LONGEST[self._machine.engine]
        return super()._life(do, is_last=is_last, refuses=refuses)

    def _write(self, source: Source) -> None:
        """A file is there with the time that its folder is ordered by."""
        longest = max(2, len(source.rows) // self._chooser.choice((1, 2, 4)))
        date = FIRST_DATE + len(source.files) + 1
        write_next(self._chooser, self._folder / source.name, source, longest, (date, date))

    def _runs(self) -> None:
        """A job that is stopped some time, while files arrive."""
        applies = self._edits is not None and self._edits.chooser.random() < 0.7
        handle = deploy(self._path, apply=applies)
        if not handle.await_termination(self._until):
            handle.stop()


def tell_really(seed: int, engine: str) -> Story:
    """Let it happen on this machine. Jobs on topics need the broker of a simulated world: files stand for them."""
    with tempfile.TemporaryDirectory(prefix="real-") as temporary:
        story, machine = Story(seed), Machine(seed, Path(temporary), engine)
        (drawn,) = random.Random(f"job {seed}").choices([*SHARES], [*SHARES.values()])
        kind = Kind.FILES if drawn is Kind.TOPICS else drawn
        try:
            RealTelling(story, machine, kind).tell(None, 0.5)
        except Exception:  # noqa: BLE001  one run less to believe must not end a hunt
            story.problems.append(traceback.format_exc())
        return story


def main() -> int:
    """Runs what the arguments say."""
    parser = argparse.ArgumentParser(prog="real", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seed", type=int, help="tell what happens in this one")
    parser.add_argument("--engine", choices=[*LONGEST], default="local")
    given = parser.parse_args()
    if given.seed is not None:
        story = tell_really(given.seed, given.engine)
        print(story.text())
        return 1 if story.problems else 0
    started, lives, kills, wrong = time.monotonic(), 0, 0, 0
    for seed in range(given.first, given.first + given.seeds):
        story = tell_really(seed, given.engine)
        lives, kills = lives + story.lives, kills + story.faults
        if story.problems:
            wrong += 1
            print(story.text()[:5000], flush=True)
    print(
        f"real: {given.engine}: {given.seeds} stories from seed {given.first} on, {lives} lives, {kills} kills,"
        f" {wrong} with problems, {time.monotonic() - started:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

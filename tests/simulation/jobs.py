"""A random job in a simulated world, from one seed: what it is, what happens to it, and what is wrong with its results."""

from __future__ import annotations

import os
import random
import re
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError

from job_engine.deployment_file import load_deployment
from job_engine.errors import JobError, Unreachable
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.job import deploy, run
from job_engine.sources.listing.batch_log import batches_of
from querylang.errors import EnsueError, FileErrors, PassingError
from tests.simulation.care import Act, Care
from tests.simulation.delta import REFUSALS, Others, Table, allow, replayed_tables, unread_tables
from tests.simulation.edits import REFUSALS as OF_EDITS
from tests.simulation.edits import Edits, with_one_default
from tests.simulation.faults import Aim, Met
from tests.simulation.forgetting import Forgetting, unbalanced
from tests.simulation.histories import Histories, Past, said
from tests.simulation.kinds import (
    EDITING,
    FOCUSES,
    FOCUSES_OF,
    FOCUSES_OF_LOSSES,
    FORGETTING,
    HISTORIES,
    INSTEAD,
    LOSING,
    MOODS,
    MOODS_OF_STORES,
    MOODS_OF_TABLES,
    OF_TOPICS,
    SETTING,
    SHARES,
    WITH_PAST,
    Kind,
    deployment,
)
from tests.simulation.lookups import Levels
from tests.simulation.losses import Losses
from tests.simulation.settings import Settings
from tests.simulation.stores import BUCKET, simulated_store
from tests.simulation.topics import (
    Topic,
    expire,
    expire_planned,
    messages_of,
    note_ended,
    note_known,
    replayed_topics,
    write_messages,
)
from tests.simulation.world import World
from tests.torture.answers import OF_JOBS, Answers, Comparable, Control, replayed, without_members, written
from tests.torture.chained import chained_change, give_parameters
from tests.torture.changes import Changes, change_of_tables, random_change, write_control
from tests.torture.streams import Source, write_next

FIRST_DATE = 1_600_000_000


@dataclass(frozen=True)
class Less:
    """What is left out of a world.

    rows: so many rows of each source are left; None = all
    lives: so many lives of a process, before the last one; None = all
    muted: the numbers of faults that do not happen
    """

    rows: int | None = None
    lives: int | None = None
    muted: frozenset[int] = frozenset()


@dataclass
class Story:
    """What happened in a world, line by line, and what is wrong with it."""

    seed: int
    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    lives: int = 0
    steps: int = 0
    rows: int = 0
    faults: int = 0

    def text(self) -> str:
        """As people read it."""
        return "\n".join([f"seed {self.seed}:", *self.lines, *(f"WRONG: {problem}" for problem in self.problems)])


def tell(
    seed: int,
    met: Met | None = None,
    aim: Aim | None = None,
    kind: Kind | None = None,
    less: Less | None = None,
    *,
    has_care: bool = True,
) -> Story:
    """Let a world happen; what is met is counted in `met`.

    aim: the only call that fails
    kind: of the job; None = it is drawn
    less: what is left out
    has_care: between two lives somebody may move, back up, restore or compact the job, and queries may be
        deployed with history
    """
    shared = Path("/dev/shm")  # its files are in memory
    with tempfile.TemporaryDirectory(prefix="simulated-", dir=shared if shared.is_dir() else None) as temporary:
        folder = Path(temporary) / "disk"
        folder.mkdir()
        story = Story(seed)
        is_whole = has_care and aim is None
        world = World(seed, folder, Met() if met is None else met)
        telling = Telling(story, world, kind, less or Less(), has_histories=is_whole)
        try:
            telling.tell(aim, 0.5 if is_whole else 0.0)
        except Exception:  # noqa: BLE001  one world less to believe must not end a hunt of a night
            story.problems.append(traceback.format_exc())
        return story


class Telling:
    """Lets the story of a seed happen in a world."""

    def __init__(self, story: Story, world: World, kind: Kind | None, less: Less, *, has_histories: bool) -> None:
        self._story, self._world = story, world
        self._chooser = random.Random(f"job {story.seed}")
        self._folder = world.folder
        (drawn,) = self._chooser.choices([*SHARES], [*SHARES.values()])
        if has_histories:
            chances = (*INSTEAD.values(), 1 - sum(INSTEAD.values()))
            (drawn,) = random.Random(f"kind {story.seed}").choices((*INSTEAD, drawn), chances)
        own = kind or drawn
        self._path, self._sources = deployment(self._chooser, world, story.seed, own)
        self._settings: Settings | None = None
        if has_histories:
            self._settings = Settings.of(self._path, random.Random(f"settings {story.seed}"), own, self._sources)
        for source in self._sources:
            if less.rows is not None:  # those that are there already stay
                source.rows = source.rows[: max(less.rows, sum(len(rows) for _, rows in source.files))]
        self._less, world.faults.muted = less, less.muted
        self._owner = random.Random(f"levels {story.seed}")
        self._levels = Levels.beside(self._path, self._owner) if own is Kind.LOOKUPS else None
        is_chained = own in (Kind.CHAINS, Kind.CHAINED_TOPICS)
        if is_chained and has_histories and random.Random(f"values {story.seed}").random() < SETTING:
            give_parameters(self._path)
        change = chained_change(self._path) if is_chained else change_of_tables if own is Kind.DELTA else random_change
        self._changes = Changes(self._path, change)
        is_changed = own in (Kind.FILES, Kind.CHAINS) and self._chooser.random() < 0.3
        self._histories: Histories | None = None
        self._past = random.Random(f"history {story.seed}")
        self._focus = random.Random(f"focus {story.seed}")
        self._focused = 0.0 if not has_histories else 0.6 if own is Kind.DELTA else 0.3
        if has_histories and own in HISTORIES and self._past.random() < HISTORIES[own]:
            self._histories = Histories.of(self._path, self._past)
            tables = random.Random(f"past {story.seed}")
            if self._histories is not None and own in (Kind.FILES, Kind.LOOKUPS) and tables.random() < WITH_PAST:
                self._histories.past = Past.beside(self._path, tables, self._sources)
            is_changed = is_changed and self._histories is None
        elif has_histories and own not in (Kind.FILES, Kind.QUERIES, Kind.CHAINS):
            is_changed = self._past.random() < 0.4
        is_ordered = self._settings is not None and "ordering" in self._settings.options  # in place of waits
        is_changed = is_changed and not is_ordered
        # messages, tables and objects come in fewer parts than files
        self._change_rate = 0.0 if not is_changed else 0.3 if own in (Kind.FILES, Kind.CHAINS) else 0.7
        self._expiry = random.Random(f"expiry {story.seed}")
        self._expires = has_histories and own in OF_TOPICS and self._expiry.random() < 0.4
        self._expires &= self._histories is None and not is_changed
        self._others: Others | None = None
        if own is Kind.DELTA:
            others = random.Random(f"others {story.seed}")
            is_steady = self._histories is not None or is_changed
            self._others = Others(others, is_hard=others.random() < 0.6 and not is_steady)
            world.tables.others = self._meets_another
        self._steering = random.Random(f"controls {story.seed}")
        self._controls: list[Control] = []
        is_steered = has_histories and (self._folder / "control").exists() and self._steering.random() < 0.4
        self._control_rate = 0.2 if is_steered else 0.0
        forgetting = random.Random(f"forgetting {story.seed}")
        # what is forgotten moves no clock that all keys share
        is_plain = own in FORGETTING and self._histories is None and not is_ordered
        forgets = has_histories and is_plain and forgetting.random() < FORGETTING[own]
        self._forgetting = Forgetting.of(self._path, forgetting) if forgets else None
        if self._levels is not None and self._forgetting is not None:
            self._levels.forgotten = self._forgetting.key
        self._streaming = random.Random(f"live {story.seed}")
        self._streams = (
            self._forgetting is None and has_histories and is_changed and (self._folder / "control").exists()
        )
        if self._streams and self._streaming.random() < 0.6:
            self._path.write_text(self._path.read_text("utf-8") + "live: true\n", "utf-8")
            self._change_rate = 0.7
        else:
            self._streams = False
        editing = random.Random(f"edits {story.seed}")
        is_edited = has_histories and own in EDITING and self._histories is None and not self._streams
        is_edited = is_edited and not is_ordered and editing.random() < EDITING[own]
        self._edits: Edits | None = None
        if is_edited:
            self._changes.choose = with_one_default(change)
            self._edits = Edits(self._path, editing, self._changes.choose)
        self._expires &= not is_edited
        self._accepts_loss = False
        losing = random.Random(f"losses {story.seed}")
        loses = has_histories and own is Kind.FILES and self._histories is None and losing.random() < LOSING
        loses = loses and self._edits is None
        self._losses = Losses(losing) if loses else None
        self._focuses = FOCUSES_OF_LOSSES if loses else FOCUSES_OF.get(own, FOCUSES)
        if loses:
            self._focused = 0.7
        is_hard = self._others is not None and self._others.is_hard
        self._is_lossy = self._expires or is_hard or loses
        self._is_in_store = own is Kind.STORES
        after = ("keep", "delete") if self._is_in_store else ("keep", "keep", "archive old", "delete")
        self._settle(self._chooser.choice(after))
        if self._histories is not None:
            self._histories.deletes = "after: delete" in self._path.read_text("utf-8")
        self._out = self._place()
        lines = self._path.read_text("utf-8").splitlines()
        self._tables = [
            line.split(":")[0].strip() for line in lines if "{format: delta" in line and "event:" not in line
        ]
        self._seen: list[Answers] = []
        self._starts_twice = self._is_torn = False
        sent = (self._histories or self._changes).sent
        restores = not self._is_lossy and "checkpoint: s3" not in self._path.read_text("utf-8")  # no rename there
        restores &= self._settings is None or not (self._settings.moves or self._settings.channel)
        self._care = Care(self._path, random.Random(f"care {story.seed}"), sent, restores=restores)

    def tell(self, aim: Aim | None, care: float) -> None:
        lives = self._chooser.choice((1, 2, 3, 5, 8))
        self._world.faults.aim = aim
        for _ in range(lives if self._less.lives is None else min(lives, self._less.lives)):
            rate = 0.0 if aim else self._chooser.choice((0.003, 0.01, 0.03, 0.1))
            moods = MOODS_OF_TABLES if self._others is not None else MOODS_OF_STORES if self._is_in_store else MOODS
            self._world.faults.begin(rate, self._chooser.choice(moods))
            if self._focus.random() < self._focused:
                self._world.faults.focus(self._focus.choice(self._focuses))
            if self._expires:
                note_known(self._world.broker, self._topics, self._path)
            if self._others is not None:
                self._others.note_known(self._path)
            self._accepts_loss = self._is_lossy and self._expiry.random() < (0.3 if self._expires else 0.5)
            if self._life(self._runs, refuses=self._refuses) and self._has_committed_all():
                note_ended(self._world.broker, self._topics)
                if self._others is not None:
                    self._others.gone.read.clear()
                if self._losses is not None:
                    self._losses.read.clear()
            elif self._losses is not None:
                self._losses.remove(self._path)
            elif self._expires and self._expiry.random() < 0.5:
                expire_planned(self._expiry, self._world.broker, self._topics)
            if self._forgetting is not None and self._forgetting.chooser.random() < 0.5:
                self._acts(self._forgetting.act())
            if self._edits is not None and self._edits.chooser.random() < 0.5:
                self._edits.write()
            if self._settings is not None and self._settings.chooser.random() < 0.3:
                self._settings.edit()
            while self._care.chooser.random() < care:
                self._acts()
        self._world.faults.aim = None
        self._world.faults.begin(0.0, frozenset())
        self._world.broker.come_back()
        self._world.store.come_back()
        self._write_all()
        if self._care.owed is not None:
            with self._looking():
                act = self._care.restoring(self._care.owed)
            self._acts(act)
        if self._ends():
            with self._looking():
                if self._levels is None or self._levels.is_kept:
                    self._check()
        self._story.lives = self._world.lives
        self._story.steps = self._world.steps
        self._story.faults = self._world.faults.count
        self._story.rows = max(len(source.rows) for source in self._sources)

    def _has_committed_all(self) -> bool:
        """Whether the job reads nothing again: a run may be stopped before it has repeated what was begun."""
        with self._looking():
            return batches_of(load_deployment(self._path).checkpoint).open is None

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Somebody looks at the job from outside, whom nothing fails."""
        with ExitStack() as stack:
            if self._is_in_store:
                stack.enter_context(simulated_store(self._world.store))
                stack.enter_context(self._world.scheduler.outside())
            yield

    def _ends(self) -> bool:
        """Run the job to its end; what is lost has to stop it before that is accepted."""
        if self._others is not None:
            allow(self._path)
        accepts, applies = self._is_lossy, self._edits is not None
        may_be_refused = accepts or applies
        if may_be_refused and self._life(
            lambda: run(self._path, once=True, flush=True, apply=applies), refuses=self._refuses
        ):
            return True
        return self._life(
            lambda: run(self._path, once=True, flush=True, accept_loss=accepts, apply=applies), is_last=True
        )

    def _refuses(self, error: str) -> bool:
        """Whether a run was refused as it should be: what it has to read no longer exists, or is not allowed."""
        if self._edits is not None and any(part in error for part in OF_EDITS):
            if any(part in error for part in OF_JOBS):
                self._edits.take_back()
            return True
        parts = REFUSALS if self._others is not None else ("ensue run --accept-loss",)
        return (self._is_lossy or self._others is not None) and any(part in error for part in parts)

    def _acts(self, act: Act | None = None) -> None:
        """Somebody does something to the job that does not run."""
        past = self._histories
        if act is None and past is not None and self._care.owed is None and self._past.random() < 0.4:
            act = Act("deploy with history", lambda: past.deploy(self._past), past.is_refused)
        with self._looking():
            act = act or self._care.act()
        if act is None:
            return
        self._story.lines.append(act.name)
        if self._life(act.do, refuses=act.refuses):
            act.done()
            if act.name.startswith("restore"):
                self._seen.clear()
        with self._looking():
            self._care.say_buckets()

    def _life(
        self, do: Callable[[], object], *, is_last: bool = False, refuses: Callable[[str], bool] | None = None
    ) -> bool:
        """A life of a process of the job; gives whether it returned.

        refuses: whether an error is as it should be; None = none is
        """
        story, world = self._story, self._world
        struck, self._starts_twice = len(world.faults.said), False
        was_away = world.broker.is_away() or world.broker.has_just_begun or world.store.is_away()
        try:
            with ExitStack() as stack:
                if self._others is not None:
                    stack.enter_context(self._others.gone.noticed())
                if self._losses is not None:
                    stack.enter_context(self._losses.noticed())
                if self._edits is not None:
                    stack.enter_context(self._edits.noticed(world.scheduler.outside))
                has_returned = world.live(do)
        except EnsueError as error:
            has_returned = False
            said = world.faults.said[struck:]
            story.lines += [*said, f"ended with {type(error).__name__}: {error}"]
            is_refused = self._starts_twice and isinstance(error, PassingError) and "another run" in str(error)
            is_away = was_away and isinstance(error, Unreachable)
            is_refused |= self._care.owed is not None and "a restore of it was interrupted" in str(error)
            is_refused |= refuses is not None and refuses(str(error))
            if refuses is not None and refuses(str(error)) and self._others is not None and self._expiry.random() < 0.6:
                allow(self._path)
            if is_last or not (said or is_refused or is_away):
                story.problems.append(f"{type(error).__name__} where nothing has failed: {error}")
            elif "damaged" in str(error):
                story.problems.append(f"nothing that can happen damages a checkpoint: {error}")
            elif isinstance(error, FileErrors) and "no such" in str(error):
                story.problems.append(f"what fails for a moment is not gone: {error}")
            elif isinstance(error, JobError):
                story.problems.append(f"an error without plain words: {error!r}, of {error.__cause__!r}")
        except Exception as error:  # noqa: BLE001 # whatever it is, it is reported with its seed
            has_returned = False
            story.lines += world.faults.said[struck:]
            lines = traceback.format_exception(error)
            story.problems.append(f"{type(error).__name__}: {error}\n{''.join(lines[-12:])}")
        else:
            story.lines += [*world.faults.said[struck:], "stopped" if has_returned else "crashed"]
        is_torn_now = any(fault.startswith("power lost") for fault in world.faults.said[struck:])
        # the next run mends what is torn, as soon as it starts
        self._is_torn = is_torn_now or (self._is_torn and not (has_returned and do == self._runs))
        if is_torn_now and self._losses is not None:
            self._losses.forgotten |= self._losses.removed
        self._look_at_sinks()
        return has_returned

    def _look_at_sinks(self) -> None:
        """Read what sinks show, as anybody may at any time: whole files, whose results stay.

        While a compaction replaces files, rows are there twice.
        """
        if any("/.compact-" in name for name in self._names_in_sinks()):
            return
        try:
            self._seen.append(self._results())
        except DeltaError as error:
            if not self._is_torn:
                self._story.problems.append(f"a table that a sink writes cannot be read: {error}")
        except (OSError, pa.ArrowException) as error:
            self._story.problems.append(f"what a sink shows cannot be read: {type(error).__name__}: {error}")

    def _names_in_sinks(self) -> Iterable[str]:
        return self._world.store.objects if self._is_in_store else map(str, self._out.rglob(".*"))

    def _results(self) -> Answers:
        """What the sinks hold."""
        if not self._is_in_store:
            return written(self._out, tables=self._tables)
        with tempfile.TemporaryDirectory() as folder:
            self._world.store.copy_below("out", Path(folder))
            return written(Path(folder))

    def _runs(self) -> None:
        """A job in the background that is stopped some time, while files arrive."""
        scheduler = self._world.scheduler
        arrivals = scheduler.start(self._arrivals, "arrivals")
        self._starts_twice = self._chooser.random() < 0.2
        if self._starts_twice:
            scheduler.start(self._starts_too, "second")
        applies = self._edits is not None and self._edits.chooser.random() < 0.7
        handle = deploy(self._path, accept_loss=self._accepts_loss, apply=applies)
        scheduler.wait(lambda: arrivals.has_ended, self._chooser.choice((1.0, 3.0, 10.0, 30.0)))
        if not handle.await_termination(self._chooser.choice((0.0, 0.3, 5.0))):
            handle.stop()

    def _starts_too(self) -> None:
        """Somebody else starts the same job meanwhile: one of both is refused."""
        self._world.scheduler.wait(lambda: False, self._chooser.uniform(0, 3))
        try:
            deploy(self._path).stop()
        except EnsueError:
            pass  # as it should be
        except Exception as error:  # noqa: BLE001 # whatever it is, it is reported with its seed
            self._story.problems.append(f"the second start: {error!r}")

    def _deploys(self) -> None:
        """Somebody deploys queries with history meanwhile."""
        assert self._histories is not None, "there are some"
        struck = len(self._world.faults.said)
        try:
            self._histories.deploy(self._past)
        except EnsueError as error:
            self._story.lines.append(f"a history ended with {type(error).__name__}: {error}")
            is_right = self._histories.is_refused(str(error)) or isinstance(error, Unreachable)
            if not is_right and len(self._world.faults.said) == struck:
                self._story.problems.append(f"{type(error).__name__} of a history where nothing has failed: {error}")
        except Exception as error:  # noqa: BLE001 # whatever it is, it is reported with its seed
            self._story.problems.append(f"a history: {error!r}\n{''.join(traceback.format_exception(error)[-12:])}")

    def _arrivals(self) -> None:
        """Files come, queries are changed, and the clock of the machine is set."""
        scheduler = self._world.scheduler
        while any(source.is_waiting for source in self._sources):
            scheduler.wait(lambda: False, self._chooser.uniform(0, 2))
            waiting = [source for source in self._sources if source.is_waiting]
            with scheduler.outside():
                self._write(self._chooser.choice(waiting))
                if self._others is not None and self._expiry.random() < 0.2:
                    self._commits()
                if self._others is not None and self._expiry.random() < 0.15:
                    return  # the rest comes in later lives
                if self._expires and self._expiry.random() < 0.2:
                    expire(self._expiry, self._world.broker, self._expiry.choice(self._topics))
                if self._chooser.random() < self._change_rate:
                    if self._streams and self._streaming.random() < 0.6:
                        self._changes.stream(self._streaming, self._folder / "control", self._sources)
                    else:
                        self._changes.send(self._chooser)
                if self._histories is not None and self._past.random() < 0.1:
                    self._histories.send(self._past)
                if self._steering.random() < self._control_rate:
                    write_control(self._steering, self._folder / "control", self._sources, self._controls)
                if self._levels is not None and self._owner.random() < 0.2:
                    self._levels.replace(self._owner)
                if self._forgetting is not None and self._forgetting.chooser.random() < 0.1:
                    self._forgetting.ask_early()
                if self._chooser.random() < 0.1:
                    self._look_at_sinks()
            if self._histories is not None and self._past.random() < 0.2:
                scheduler.start(self._deploys, "deploy")
            if self._chooser.random() < 0.05:
                scheduler.skew += self._chooser.choice((-3600.0, -2.0, 2.0, 3600.0))

    def _meets_another(self, folder: str) -> None:
        """Somebody else commits to a table that the job has just opened."""
        assert self._others is not None, "there are some"
        source = next((item for item in self._sources if isinstance(item, Table) and str(item.folder) == folder), None)
        if source is None:
            self._others.commit(folder)
        elif source.is_waiting:
            self._others.write(source, self._world.scheduler.now)

    def _commits(self) -> None:
        """Somebody else commits to a table of a sink."""
        assert self._others is not None, "there are some"
        tables = sorted({log.parents[1] for log in self._out.rglob("_delta_log/*.json")})
        if tables:
            table = str(self._expiry.choice(tables))
            self._others.commit(table)
            self._world.disk.synced_below(table)

    @property
    def _topics(self) -> list[Topic]:
        return [source for source in self._sources if isinstance(source, Topic)]

    @property
    def _read_tables(self) -> list[Table]:
        return [source for source in self._sources if isinstance(source, Table)]

    def _settle(self, after: str) -> None:
        """Say what becomes of files that were read."""
        text = self._path.read_text("utf-8")
        parts = [text] if "tables/" in text else text.split("options: {maxFiles")
        for number in range(1, len(parts)):
            own = f"{after}{number}" if after.startswith("archive") else after
            parts[number] = f"after: {own}, options: {{maxFiles{parts[number]}"
        self._path.write_text("".join(parts), "utf-8")

    def _place(self) -> Path:
        """Put sinks and checkpoint where folders are made for them alone; gives the folder of the sinks."""
        out, checkpoint = self._chooser.choice(("out", "made/for/out")), self._chooser.choice(("state", "kept/of/it"))
        text = self._path.read_text("utf-8").replace("path: out/", f"path: {out}/")
        self._path.write_text(text.replace("checkpoint: state", f"checkpoint: {checkpoint}"), "utf-8")
        return self._folder / out

    def _write(self, source: Source) -> None:
        if isinstance(source, Topic):
            write_messages(self._chooser, self._world.broker, source)
            return
        if isinstance(source, Table):
            assert self._others is not None, "there are some"
            self._others.write(source, self._world.scheduler.now)
            return
        longest = max(2, len(source.rows) // self._chooser.choice((1, 2, 4)))
        path = write_next(self._chooser, self._folder / source.name, source, longest)
        if path is not None and self._is_in_store:
            key = f"{BUCKET}/in/{path.relative_to(self._folder)}"
            self._world.store.put(key, path.read_bytes(), FIRST_DATE + len(source.files))
        elif path is not None:
            os.utime(path, (FIRST_DATE + len(source.files), FIRST_DATE + len(source.files)))

    def _write_all(self) -> None:
        for source in self._sources:
            while source.is_waiting:
                self._write(source)
            if isinstance(source, Topic):
                source.settle(self._world.broker)

    def _check(self) -> None:
        answer = self._results()
        expected, wrong = self._expected()
        if "out" in self._world.broker.topics:
            if self._forgetting is None:
                self._story.problems += messages_of(self._world.broker, expected)
            expected = replace(expected, outputs=answer.outputs)
        if self._settings is not None and self._settings.is_one:
            expected = without_members(expected)
        ended = set() if self._histories is None else {*self._histories.sent.values()}
        begun = {name for text in self._changes.streamed for name in re.findall(r"query (\w+)", text)}
        if self._edits is not None:
            names = self._edits.names(self._changes)
            ended = begun = {title for title, _ in answer.ledger if title.partition("/")[0] in names}
        expected = replace(expected, ledger=_without_unread(answer.ledger, expected.ledger, ended, begun))
        problems = self._story.problems
        problems += [*wrong, *unread_tables(self._path, self._read_tables)]
        if self._levels is not None:
            problems += self._levels.problems(is_asked=not self._change_rate and self._histories is None)
        own = self._changes.without_early(answer) if self._histories is None else said(answer)
        if self._edits is not None:
            own, expected = said(answer), said(expected)
        if self._forgetting is not None and self._forgetting.asked:
            own, expected = (self._forgetting.of_others(each) for each in (own, expected))
        problems += unbalanced(answer.ledger)
        expected = replace(expected, ledger=_without_later_forgotten(answer.ledger, expected.ledger))
        problems += own.differences(expected)
        for seen in self._seen:
            gone = [(kind, getattr(seen, kind) - getattr(answer, kind)) for kind in ("matches", "outputs", "discarded")]
            problems += [f"{kind}: {sum(lost.values())} were seen and are gone" for kind, lost in gone if lost]
        total: Comparable = Counter()
        for (name, _, what), count in JobFolder(load_deployment(self._path).checkpoint).ledger.total().items():
            total[name, what] += count
        if +total != answer.ledger:
            problems.append(f"the ledger of the checkpoint is not that of the sink: {(+total) - answer.ledger}")
        left = [path for path in self._out.rglob("*") if path.is_file() and path.name[0] == "."]
        problems += [f"{path} was left" for path in left]

    def _expected(self) -> tuple[Answers, list[str]]:
        """What a replay gives, and what is wrong with answers to changes."""
        if self._histories is not None:
            done, wrong = self._histories.done()
            return self._histories.expected(self._replayed, done), wrong
        if self._edits is not None:
            controls, wrong = self._edits.controls(self._changes)
            return self._replayed(self._edits.whole(), controls, parameters=self._edits.first.parameters), wrong
        (query,) = self._folder.glob("*.query")
        controls, wrong = self._changes.controls()
        if self._losses is None:
            return self._replayed(query, controls), wrong
        options = {} if self._settings is None else self._settings.options
        answers = replayed(query, self._losses.left(self._sources), [*self._controls, *controls], **options)
        return self._losses.with_lost(answers, self._results(), self._path, self._changes.names), [
            *wrong,
            *self._losses.problems(self._path),
        ]

    def _replayed(
        self, queries: Path, changes: list[Control], past: Sequence[dict[str, object]] = (), **more: Any
    ) -> Answers:
        controls = [*self._controls, *changes]
        options = more | ({} if self._settings is None else self._settings.options)
        if self._topics:
            return replayed_topics(queries, self._topics, self._world.broker, controls, **options)
        if self._others is not None:
            return replayed_tables(self._path, queries, self._read_tables, self._others.gone, controls, **options)
        lookups = {} if self._levels is None else {"tables": self._levels.given()}
        return replayed(queries, self._sources, controls, past, **options, **lookups)


def _without_later_forgotten(found: Comparable, expected: Comparable) -> Comparable:
    """What a replay counts without keys that it forgets at the end, where its clock is that of all sources."""
    word = "forgotten_keys"
    return +Counter({key: min(count, found[key]) if key[1] == word else count for key, count in expected.items()})


def _without_unread(found: Comparable, expected: Comparable, ended: set[str], begun: set[str]) -> Comparable:
    """What a replay counts, with what a job counts of records that concern no query, and whose source nobody reads.

    Nothing waits for them: those that are read once a query has ended, or begun, are counted for whoever runs then.
    """
    total = Counter(expected)
    for title in ended | begun:
        other = found[title, "unrelated"] - expected[title, "unrelated"]
        if title in (ended if other < 0 else begun):
            total.update({(title, "unrelated"): other, (title, "received"): other})
    return +total

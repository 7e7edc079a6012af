"""Commands: what a user asks of a job, as files inside its checkpoint.

Whoever asks writes a file with a number of its own. The lister looks for new commands as often as
it lists the sources, and puts them into a manifest, so that a repeated micro-batch has the same
ones. The job writes what became of each to the folder `done`, and removes the file. Imports are
few, because the process that lists files has to start fast.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal, TypedDict

from job_engine.clock import wall_ns
from job_engine.durable_files import JobFile, numbers_in, sync_seen
from job_engine.place import Place, RemotePath
from querylang.dataclass import asdict, dataclass, field, replace
from runtime.instants import EARLIEST, LATEST
from runtime.json_reader import DamagedJson, json_of_text
from runtime.json_shapes import Count, Unicode

COMMAND_VERSION = 1

CommandKind = Literal["event", "forget", "change", "error"]

EVENT: Final = "event"
"""The kind of a command that is a control event."""

FORGET: Final = "forget"
"""The kind of a command that removes what is kept of a key, which its text has as JSON."""

CHANGE: Final = "change"
"""The kind of a command that changes the queries: the job itself carries it out, not the lister."""

KEPT = 1000
"""Number of latest outcomes that are not removed."""


@dataclass(frozen=True, slots=True)
class Command:
    """What a user asks of a job.

    number: larger than those of earlier commands
    text: of kind EVENT, a control event
    at: the arrival time at which it takes place, µs; None = as soon as it is read
    kind: what the text is
    origin: the record of the control stream that it stands for; None = a user has sent it
    """

    number: Count
    text: Unicode
    at: Annotated[int, range(EARLIEST, LATEST + 1)] | None = None
    kind: CommandKind = EVENT
    origin: Unicode | None = None

    def to_plain(self) -> dict[str, Any]:
        """The command as JSON can hold it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to a command.

    part: who answers; the same part answers once
    of: how many parts answer in all
    kind: `taken`, which is not one of these, or what was done, or `error`
    time: the place in the order of arrival, µs; None = none
    text: what is to be said about it
    count: how many things it concerned
    """

    number: int
    part: str
    of: int
    kind: str
    time: int | None = None
    text: str = ""
    count: int = 0


TAKEN = "taken"
"""The kind of the answer that a command was taken; what it does may come later."""

ERROR: Final = "error"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a command so far.

    batch: the micro-batch that took it
    answers: by part, `taken` not among them
    of: how many parts answer in all
    time: its place in the order of arrival, µs; None = none
    """

    number: int
    batch: int
    of: int
    time: int | None
    answers: Mapping[str, Answer] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether all parts have answered."""
        return len(self.answers) >= self.of

    @property
    def errors(self) -> list[str]:
        """What was wrong, each text once."""
        return list(dict.fromkeys(item.text for item in self.answers.values() if item.kind == ERROR))

    @property
    def count(self) -> int:
        """How many things it concerned."""
        return sum(item.count for item in self.answers.values())


@dataclass(frozen=True, slots=True)
class _OutcomeFile:
    """An outcome as its file has it."""

    number: Count
    batch: int
    of: Count
    time: int | None
    answers: tuple[Answer, ...]


class _KeyText(TypedDict):
    key: dict[str, Any]


def key_text(parts: Mapping[str, Any]) -> str:
    """The text of a command of kind FORGET; `parts`: as of `GivenKey`."""
    return json.dumps({"key": dict(parts)})


@dataclass(frozen=True, slots=True)
class CommandFolder:
    """The folder of commands of a checkpoint."""

    checkpoint: Place

    @property
    def path(self) -> Place:
        """Where the commands are that nobody has answered yet."""
        return self.checkpoint / "ensue" / "commands"

    @property
    def done(self) -> Place:
        """Where the outcomes are."""
        return self.path / "done"

    def send(
        self, text: str, *, at: int | None = None, kind: CommandKind = EVENT, origin: str | None = None
    ) -> Command:
        """Write a command; it survives a power cut. Raises OSError."""
        sync_seen(self.path.parent.parent)  # whose record somebody may be about to bring to the disk
        before = (*self.pending(), *numbers_in(self.done, _NUMBER))
        number = max([wall_ns() // 1000, *(last + 1 for last in before)])
        while True:
            command = Command(number, text, at, kind, origin)
            if self._file(number).create({"version": COMMAND_VERSION, **command.to_plain()}):
                return command
            number += 1

    def send_changes(self, asked: Iterable[Mapping[str, Any]]) -> None:
        """Write the changes that a micro-batch asks for, in order; repeated, each is there once.

        No change is done, and so none is removed, before its micro-batch is committed.

        asked: `origin`, `at` and `text` of each
        """
        known = {command.origin for command in self.waiting()}
        for item in asked:
            if item["origin"] not in known:
                self.send(item["text"], at=item["at"], kind=CHANGE, origin=item["origin"])

    def pending(self) -> list[int]:
        """The numbers of commands that have no outcome yet, ascending."""
        return numbers_in(self.path, _NUMBER)

    def waiting(self) -> Iterator[Command]:
        """The commands that have no outcome yet, in order; each is read when it is asked for."""
        commands = (self.read(number) for number in self.pending())
        return (command for command in commands if command is not None)

    def read(self, number: int) -> Command | None:
        """A command that was sent; None = there is none. A damaged one has the kind ERROR."""
        try:
            found = self._file(number).read()
            if found is not None and found.kind == FORGET:
                json_of_text(found.text, _KeyText)
        except DamagedJson as error:
            return Command(number, str(error), kind=ERROR)
        return None if found is None else replace(found, number=number)

    def withdraw(self, number: int) -> None:
        """Remove a command that was answered, or that no job has seen."""
        self._file(number).remove()

    def remove_answered_changes(self) -> None:
        """Remove the files of changes that were answered: behind a power cut they may be back."""
        for command in list(self.waiting()):
            if command.kind == CHANGE and self.outcome(command.number) is not None:
                self.withdraw(command.number)

    def outcome(self, number: int) -> Outcome | None:
        """What became of a command; None = it has not been taken."""
        data = self._outcome_file(number).readable()
        if data is None:
            return None
        return Outcome(data.number, data.batch, data.of, data.time, {row.part: row for row in data.answers})

    def add(self, batch: int, answers: Iterable[Answer]) -> None:
        """Write down answers of a micro-batch; repeated, each counts once."""
        by_command: dict[int, list[Answer]] = {}
        for answer in answers:
            by_command.setdefault(answer.number, []).append(answer)
        for number, some in by_command.items():
            before = self.outcome(number) or Outcome(number, batch, some[0].of, some[0].time)
            known = {**before.answers, **{item.part: item for item in some if item.kind != TAKEN}}
            self._write(Outcome(number, before.batch, before.of, before.time, known))
            self.withdraw(number)
        if by_command:
            for number in numbers_in(self.done, _NUMBER)[:-KEPT]:
                self._outcome_file(number).remove()

    def _write(self, outcome: Outcome) -> None:
        plain = {name: getattr(outcome, name) for name in ("number", "batch", "of", "time")}
        rows = [asdict(item) for _, item in sorted(outcome.answers.items())]
        self._outcome_file(outcome.number).write({**plain, "answers": rows})

    def _file(self, number: int) -> JobFile[Command]:
        return JobFile(self.path / f"{number:020d}.json", Command, "Send it again", (COMMAND_VERSION,))

    def _outcome_file(self, number: int) -> JobFile[_OutcomeFile]:
        return JobFile(self.done / f"{number:020d}.json", _OutcomeFile)


_NUMBER = re.compile("0{2}[0-9]{18}")
"""Times in µs have at most 18 digits: the number behind the last one is a number, too."""


PAUSE = 5_000_000_000
"""ns between two looks at a store, where each look is a request."""


class CommandWatch:
    """The commands of a checkpoint, as the lister sees them.

    now: the wall clock, ns since 1970
    """

    def __init__(self, checkpoint: Place, now: Callable[[], int]) -> None:
        self._folder = CommandFolder(checkpoint)
        self._now = now
        self._pause = PAUSE if isinstance(checkpoint, RemotePath) else 0
        self._next_look = 0
        self.has_change = False  # a change of the queries waits: nothing more is read before it is done

    def pending(self) -> list[int]:
        """The numbers of commands whose files are there."""
        return self._folder.pending()

    def new(self, taken: Collection[int], *, at_once: bool = False) -> tuple[Command, ...]:
        """The commands that were not taken yet, in order.

        A change of the queries is not for the lister: nothing behind it is taken before it is done.

        at_once: look also where the last look was a moment ago
        """
        if self._pause and not at_once:
            now = self._now()
            if now < self._next_look:
                return ()
            self._next_look = now + self._pause
        found: list[Command] = []
        for number in self._folder.pending():
            command = None if number in taken else self._folder.read(number)
            if command is not None and command.kind == CHANGE:
                self.has_change = True
                return tuple(found)
            if command is not None:
                found.append(command)
        self.has_change = False
        return tuple(found)

    def remove_answered(self, taken: Collection[int]) -> None:
        """Remove the files that a run was killed before it removed them."""
        for number in self._folder.pending():
            if number in taken and self._folder.outcome(number) is not None:
                self._folder.withdraw(number)

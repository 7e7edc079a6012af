"""Random changes of the queries of a job that is tortured, and where they took place."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from job_engine.deployment_file import load_deployment
from job_engine.job.commands import send_command
from job_engine.sources.listing.command_folder import CHANGE, CommandFolder
from runtime.instants import EARLIEST, LATEST
from tests.torture.answers import BEHIND, Answers, Control, is_of_jobs
from tests.torture.streams import SECOND, START, Source

NAMES = ("Rise", "Silence", "_Three", "Extra", "Twice")
INPUTS = "inputs {{ A() key k within {window}.0 wait {wait}.0; B() key k within {window}.0 wait {wait}.0; }}"
SEND = '{{ send B(a.k, a.v, a.n, a.ts) to "silent"; }}'
FILTERED = "inputs {{ A(v > {least}) key k within {window}.0; C() key k within {window}.0 wait {wait}.0; }}"
PRINT = '{{ print a.n.toString() + "{word}"; }}'
TEXTS = (
    f"parameters {{{{ integer least := {{least}}; }}}} {INPUTS} find A as a -> B as b where b.v > a.v + least {PRINT}",
    f"inputs {{{{ B() key k within {{window}}.0 wait {{wait}}.0; }}}} find B as a -> wait(5.0) as w without B as o {SEND}",
    f"{FILTERED} find A as a -> C as c where c.v != a.v",
    f"inputs {{{{ A() key k retain 3; }}}} find A as a -> A as b where b.v = a.v {PRINT}",
    f"{INPUTS} find A as a => B as b {PRINT}",
)


LEEWAYS = (
    "SetDelayedEventsLeeway(3.0, 1.0)",
    "SetDelayedEventsLeeway(infinity, 0.0)",
    "SetDelayedEventsLeeway(10.0, 10.0)",
)


def write_control(chooser: random.Random, folder: Path, sources: Sequence[Source], controls: list[Control]) -> None:
    """One control event at the furthest arrival that was written, so that no clock is beyond it."""
    control = Control(_furthest(sources), chooser.choice(LEEWAYS), f"{len(controls):05}.csv")
    _write_row(folder / control.file, control.at, control.text)
    controls.append(control)


def _furthest(sources: Sequence[Source]) -> int:
    return max((rows[-1].at for source in sources for _, rows in source.files if rows), default=START)


def _write_row(file: Path, at: int, text: str) -> None:
    draft, cell = file.with_name(f".{file.name}.draft"), text.replace('"', '""')
    draft.write_text(f'at,event\n{at / SECOND!r},"{cell}"\n')
    draft.replace(file)


@dataclass(slots=True)
class Changes:
    """What was sent to a job.

    choose: a random control event, right or wrong
    sent: texts of control events by the number of their command
    streamed: those of the control stream, in order
    early: errors of those that were refused before others which take place earlier
    """

    deployment: Path
    choose: Callable[[random.Random], str] = field(default_factory=lambda: random_change)
    sent: dict[int, str] = field(default_factory=dict)
    streamed: list[str] = field(default_factory=list)
    early: Counter[str] = field(default_factory=Counter)

    def stream(self, chooser: random.Random, folder: Path, sources: Sequence[Source]) -> None:
        """Let the control stream ask for a random change, behind all that was written."""
        text = self.choose(chooser)
        _write_row(folder / f"change {len(self.streamed):05}.csv", _furthest(sources), text)
        self.streamed.append(text)

    def send(self, chooser: random.Random) -> None:
        """Send a random change, and do not wait for it. Before the first start nothing is sent."""
        deployment = load_deployment(self.deployment)
        if (deployment.checkpoint / "ensue.json").exists():
            text = self.choose(chooser)
            number = send_command(deployment, text, kind=CHANGE, wait=False).command.number
            self.sent[number] = text

    @property
    def names(self) -> set[str]:
        """Of the queries that changes were sent for."""
        return {name for text in (*self.sent.values(), *self.streamed) for name in NAMES if name in text}

    def controls(self) -> tuple[list[Control], list[str]]:
        """The changes as control events at their places, and what is wrong with the answers to them."""
        folder = CommandFolder(load_deployment(self.deployment).checkpoint)
        controls, problems = [], []
        done = {int(path.stem) for path in folder.done.iterdir()} if folder.done.exists() else set[int]()
        others = sorted(done - self.sent.keys()) if self.streamed else []
        if len(others) != len(self.streamed):
            problems.append(f"{len(self.streamed)} changes of the control stream have {len(others)} outcomes")
        latest = LATEST
        for number, text in sorted(
            {**self.sent, **dict(zip(others, self.streamed, strict=False))}.items(), reverse=True
        ):
            outcome = folder.outcome(number)
            if outcome is None:
                problems.append(f"a change has no outcome: {text}")
            elif not any(map(is_of_jobs, outcome.errors)):
                place = EARLIEST if outcome.time is None else outcome.time  # before all records
                if outcome.errors and place > latest:
                    # a replay takes it behind those that were asked for later, and may not refuse it then
                    self.early.update(outcome.errors)
                    continue
                latest = min(latest, place)
                controls.append(Control(place, text, f"{number}", BEHIND))
        return controls[::-1], problems

    def without_early(self, answers: Answers) -> Answers:
        """The same without the errors of changes that no replay refuses."""
        outputs, left = Counter(answers.outputs), Counter(self.early)
        for row in answers.outputs:
            found = dict(row)
            if found["kind"] == "error" and left[found["text"]]:
                count = min(left[found["text"]], outputs[row])
                outputs[row] -= count
                left[found["text"]] -= count
        return replace(answers, outputs=+outputs)


def change_of_tables(chooser: random.Random) -> str:
    """As `random_change`, for sinks of Delta tables: their package takes the folder `%5FThree` for `_Three`."""
    return random_change(chooser).replace("_Three", "Three")


def random_change(chooser: random.Random) -> str:
    """A control event that changes queries; one of ten names what is not there."""
    name = chooser.choice(NAMES)
    match chooser.randrange(10):
        case 0 | 1 | 2:
            return _event("DeployQuery", random_text(chooser, name))
        case 3 | 4 | 5:
            return _event("ReplaceQuery", random_text(chooser, name), *(["now"] if chooser.random() < 0.3 else []))
        case 6:
            return _event("UndeployQuery", name)
        case 7 | 8:
            instance = chooser.choice(("", "eu", "a b"))
            return _event("SetParameters", name, instance, {"least": chooser.choice((0, 5, 40, "much"))})
        case _:
            return _event("RemoveInstance", name, chooser.choice(("", "eu", "nowhere")))


def _event(name: str, *arguments: object) -> str:
    return json.dumps({name: arguments})


def random_text(chooser: random.Random, name: str) -> str:
    """A query of that name."""
    body = chooser.choice(TEXTS).format(
        window=chooser.choice((5, 20, 60)),
        wait=chooser.choice((1, 3)),
        least=chooser.choice((0, 20)),
        word=chooser.choice(("one", "two")),
    )
    return f"query {name} {{ {body} }}"

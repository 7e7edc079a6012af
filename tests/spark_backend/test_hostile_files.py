"""Files of a checkpoint that are damaged or hostile: each mutant is read or refused in one line, and none leads out."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ensue import EnsueError
from job_engine.deployment_file import load_deployment
from job_engine.job.checkpoint.checkpoint_record import read_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.history.read_again import histories, remove_done
from job_engine.job.written_journal import read_journal
from job_engine.place import OutsidePath
from job_engine.sources.folder.after_reading import Settled, settle
from job_engine.sources.folder.listing import FileStamp
from job_engine.sources.folder.pieces import FolderMemory, ReadFile
from job_engine.sources.folder.settings import ListedSource
from job_engine.sources.listing.batch_log import committed_manifest
from job_engine.sources.listing.command_folder import ERROR, CommandFolder
from job_engine.sources.listing.manifests import ManifestFolder
from runtime.json_reader import DamagedJson
from tests.support.mutants import json_mutant
from tests.support.old_checkpoint import unpacked

SAMPLE = Path(__file__).parents[1] / "snapshots" / "checkpoint-4.tar.gz"
MUTANTS = 150
"""Of each kind; `tests.torture.hostile` has more."""

READERS: dict[str, Callable[[Path], object]] = {
    "ensue.json": lambda folder: (read_record(folder / "state"), committed_manifest(folder / "state")),
    "ensue/program.json": lambda folder: read_journal(load_deployment(folder / "old.yaml")),
    "ensue/progress/*.json": lambda folder: JobFolder(folder / "state").last_progress(),
    "ensue/ledger/*.json": lambda folder: JobFolder(folder / "state").ledger.total(),
    "ensue/inputs/manifests/*.json": lambda folder: [
        manifests.read(number)
        for manifests in [ManifestFolder(folder / "state/ensue/inputs/manifests")]
        for number in manifests.numbers()
    ],
}


@pytest.mark.parametrize("name", READERS)
def test_mutants_are_read_or_refused_in_one_line(tmp_path: Path, name: str) -> None:
    unpacked(SAMPLE, tmp_path)
    files = sorted(path for path in (tmp_path / "state").glob(name) if not path.name.startswith("."))
    file, chooser, refused = files[-1], random.Random(1), 0
    good = file.read_bytes()
    READERS[name](tmp_path)
    for _ in range(MUTANTS):
        file.write_bytes(json_mutant(good, chooser))
        try:
            READERS[name](tmp_path)
        except EnsueError as error:
            refused += 1
            assert "\n" not in str(error)  # noqa: PT017 # a mutant may be read, too
            assert str(tmp_path) in str(error)  # noqa: PT017 # as above
    assert refused


def test_mutants_of_commands_are_taken_or_answered(tmp_path: Path) -> None:
    folder = CommandFolder(tmp_path)
    number = folder.send('{"key": {"k": "x"}}', kind="forget", at=7).number
    (file,) = (tmp_path / "ensue/commands").glob("*.json")
    good, chooser, answered = file.read_bytes(), random.Random(1), 0
    for _ in range(1_000):
        file.write_bytes(json_mutant(good, chooser))
        command = folder.read(number)
        assert command is not None
        answered += command.kind == ERROR
        json.dumps(command.to_plain(), allow_nan=False)
        command.text.encode()
    assert answered > 100


@pytest.mark.parametrize("at", ["1e400", "1.5", "9223372036854775807", '"x"'])
def test_a_command_at_an_impossible_time_is_answered(tmp_path: Path, at: str) -> None:
    folder = CommandFolder(tmp_path)
    number = folder.send("Heartbeat()", at=7).number
    (file,) = (tmp_path / "ensue/commands").glob("*.json")
    file.write_text(file.read_text().replace('"at": 7', f'"at": {at}'))
    command = folder.read(number)
    assert command is not None
    assert (command.kind, command.at) == (ERROR, None)
    assert str(file) in command.text


def test_a_command_removes_nothing_but_histories(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    histories(tmp_path).mkdir(parents=True)
    text = json.dumps({"DeployWithHistory": {"text": "", "folder": "../../precious"}})
    remove_done(tmp_path, text)
    assert (tmp_path / "precious").is_dir()


def test_files_outside_of_a_source_are_neither_read_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    for name in ("precious.csv", "out/a.csv"):
        (tmp_path / name).write_text("")
    (tmp_path / "in/day=1").symlink_to(tmp_path / "out")
    source = ListedSource("s", str(tmp_path / "in"), (".csv",), after="delete")
    with pytest.raises(OutsidePath):
        source.file("../precious.csv")
    memory = FolderMemory("s")
    for path in ("../precious.csv", "day=1/a.csv"):
        stamp = FileStamp.of((tmp_path / "in" / path).stat())
        memory.files[path] = ReadFile(stamp, stamp, 1)
    problems = settle(source, memory, 1, Settled())
    assert sorted(problems) == ["../precious.csv", "day=1/a.csv"]
    assert (tmp_path / "precious.csv").exists()
    assert (tmp_path / "out/a.csv").exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda plan: plan.update(plan=5), "it is not a plan"),
        (lambda plan: query(plan).update(slots="x"), "'queries[0].slots': expected an integer, found 'x'"),
        (lambda plan: query(plan)["inputs"].append(7), "'queries[0].inputs[1]': expected Input, found 7"),
        (lambda plan: query(plan)["terms"][0].pop("name"), "'queries[0].terms[0]': a 'Term' needs a field 'name'"),
        (lambda plan: query(plan).update(metadata=[["x"]]), "'queries[0].metadata[0]': expected 2 items, found 1"),
        (lambda plan: query(plan)["inputs"][0].update(event="B"), "'queries[0].inputs[0].event' names something that"),
        (lambda plan: query(plan)["automaton"]["states"].insert(0, []), "'queries[0].automaton.states[0]': expected S"),
    ],
)
def test_a_damaged_plan_is_refused_with_its_field(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], why: str
) -> None:
    unpacked(SAMPLE, tmp_path)
    file = tmp_path / "state/ensue/program.json"
    data = json.loads(file.read_text())
    plan = json.loads(data["epochs"][0]["plan"])
    change(plan)
    data["epochs"][0]["plan"] = json.dumps(plan, sort_keys=True, separators=(",", ":"))
    file.write_text(json.dumps(data))
    with pytest.raises(DamagedJson, match=f"program\\.json: is damaged: its plan is damaged: {re.escape(why)}"):
        read_journal(load_deployment(tmp_path / "old.yaml"))


def query(plan: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = plan["plan"]["queries"][0]
    return found

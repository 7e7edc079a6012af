"""Files that a job keeps beside its state, and answers of a schema registry: whole ones, and what reads them."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from job_engine.deployment_file import load_deployment
from job_engine.job.checkpoint.job_folder import JobFolder, failed_tries, skip_records
from job_engine.job.preflight import Checked, checked
from job_engine.job.stages.between_batches import (
    kept_program,
    limits_of,
    settings_of,
    settings_of_interrupted,
    settings_with,
    write_settings,
)
from job_engine.job.upkeep.backup import back_up, restore
from job_engine.job.written_journal import read_files
from job_engine.sinks.folder.compaction import interrupted, remove_drafts
from job_engine.sources.crash_marks import CrashMarks, Deadly
from job_engine.sources.folder.after_reading import Settled, SettledFile
from job_engine.sources.folder.listing import FileStamp
from job_engine.sources.folder.pieces import FolderPiece, SourceCount, TakenFile
from job_engine.sources.kinds import Part
from job_engine.sources.listing.batch_log import batches_of
from job_engine.sources.listing.manifests import KEPT, Manifest, ManifestFolder, load_list
from job_engine.sources.topics.avro.budgets import WrongSchema
from job_engine.sources.topics.avro.registry import SchemaRegistry, UnknownSchema
from job_engine.sources.topics.avro.schemas import message_schema
from job_engine.sources.topics.settings import RegistryAddress
from job_engine.wire.plan_text import load_plan, template_text
from querylang.plan.model import PlanVersionError
from tests.support.old_checkpoint import unpacked

Sample = tuple[tuple[bytes, ...], Callable[[bytes], object]]
"""Whole inputs, and what reads one."""

SNAPSHOTS = Path(__file__).resolve().parents[1] / "snapshots"
IDENTITY = "0123456789ab"


def _fresh(name: str) -> Path:
    """An empty folder: another round may have left broken files."""
    folder = Path(name).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _job(sample: str = "checkpoint-4-held.tar.gz") -> Checked:
    """A job whose queries have changed, and that holds records."""
    folder = _fresh("job")
    unpacked(SNAPSHOTS / sample, folder)
    return checked(load_deployment(folder / "old.yaml"))


def journals() -> Sample:
    """The journal of live changes."""
    job = _job()
    file = job.deployment.checkpoint / "ensue" / "program.json"

    def run(data: bytes) -> None:
        file.write_bytes(data)
        program = kept_program(job.program, job.deployment)
        for stage in program.stages:
            assert stage.groups is not None
        assert program.to_text()

    return (file.read_bytes(),), run


def plans() -> Sample:
    """The texts of plans that a checkpoint has."""
    text = template_text(_job().program.plan())

    def run(data: bytes) -> None:
        load_plan.cache_clear()
        with suppress(PlanVersionError):
            load_plan(data.decode("utf-8", "replace"))

    return (text.encode(),), run


def records() -> Sample:
    """What a checkpoint was made for."""
    job = _job()
    file = job.deployment.checkpoint / "ensue.json"

    def run(data: bytes) -> None:
        file.write_bytes(data)
        checked(job.deployment)

    return (file.read_bytes(),), run


def applied_files() -> Sample:
    """What the files of queries said when they were applied last."""
    job = _job()
    file = job.deployment.checkpoint / "ensue" / "files.json"

    def run(data: bytes) -> None:
        file.write_bytes(data)
        read_files(job.deployment)

    return (file.read_bytes(),), run


def open_settings() -> Sample:
    """The settings of a micro-batch that was interrupted."""
    job = _job()
    checkpoint = job.deployment.checkpoint
    for folder in checkpoint.glob("**/commits"):
        for commit in sorted(folder.iterdir())[-2:]:
            commit.unlink()
    write_settings(checkpoint, settings_of(job.program, job.deployment), limits_of(job.deployment))
    file = checkpoint / "ensue" / "run.json"

    def run(data: bytes) -> None:
        file.write_bytes(data)
        found = settings_of_interrupted(checkpoint, batches_of(checkpoint))
        if found is not None:
            settings_with(found, job.program, job.deployment.sources)

    assert settings_of_interrupted(checkpoint, batches_of(checkpoint)) is not None
    return (file.read_bytes(),), run


def progress() -> Sample:
    """The progress of a job."""
    folder = JobFolder(_job().deployment.checkpoint)
    file = max((folder.checkpoint / "ensue/progress").glob("[0-9]*.json"))

    def run(data: bytes) -> None:
        file.write_bytes(data)
        folder.last_progress()

    return (file.read_bytes(),), run


def backups() -> Sample:
    """The list of a backup."""
    job, target = _job(), _fresh("backup")
    back_up(job.deployment.file, target)
    file = next(path for path in target.iterdir() if path.is_file())
    precious = Path("precious.txt").resolve()
    precious.write_text("")

    def run(data: bytes) -> None:
        file.write_bytes(data)
        try:
            restore(job.deployment.file, target, replace=True)
        finally:
            assert precious.exists(), "a backup touches nothing but its checkpoint"

    return (file.read_bytes(),), run


def compaction_plans() -> Sample:
    """A plan of a compaction that was interrupted: it names the files that are removed."""
    folder, precious = _fresh("out"), Path("precious.txt").resolve()
    precious.write_text("")
    new, old = f"{IDENTITY}-00000002-200000.json", [f"{IDENTITY}-0000000{at}-00000.json" for at in range(3)]
    plan = folder / f".compact-{new}.plan"

    def run(data: bytes) -> None:
        for name in (new, *old, "other.json"):
            (folder / name).write_text("{}\n")
        plan.write_bytes(data)
        try:
            files = list(folder.iterdir())
            for replacement in interrupted(files, IDENTITY):
                replacement.finish()
            remove_drafts(files, IDENTITY)
        finally:
            assert precious.exists(), "a plan names results of its own folder"
            assert (folder / "other.json").exists(), "a plan names results of its own checkpoint"

    return (json.dumps({"new": new, "old": old}).encode(),), run


def read_file_lists() -> Sample:
    """The list of the files that were read."""
    folder = _fresh("lists")
    manifests, stamp = ManifestFolder(folder / "manifests"), FileStamp(5, 7, 9)
    for number in range(1, KEPT + 3):
        file = TakenFile("s", number, f"{number}.csv", stamp)
        piece = FolderPiece(SourceCount(number, f"{number}.csv"), (file,))
        manifests.write(Manifest(number, {"s": Part("csv", piece)}))
    read = load_list(folder / "read.json", manifests, KEPT + 2)
    read.compact(folder / "read.json", manifests, ())
    file = folder / "read.json"

    def run(data: bytes) -> None:
        file.write_bytes(data)
        load_list(file, manifests, KEPT + 2)

    return (file.read_bytes(),), run


def settled_files() -> Sample:
    """What has become of the files that were read."""
    file = SettledFile(Path("settled.json").resolve())
    file.write({"s": Settled(3, {"a.csv": FileStamp(1, 2, 3)})})

    def run(data: bytes) -> None:
        file.path.write_bytes(data)
        file.write(file.read())

    return (Path("settled.json").read_bytes(),), run


def crash_marks() -> Sample:
    """What readers died on, and what is left out: damaged ones count for nothing, and stop nothing."""
    checkpoint = _fresh("crashed")
    skip_records(checkpoint, ["t/0/5"], has_log=True)
    marks = CrashMarks(checkpoint / "ensue" / "crashes")
    assert marks.folder is not None
    (skip,) = marks.folder.glob("skip-*.json")
    with marks.reading("s: a.csv"):
        (mark,) = marks.folder.glob("reading-*.json")
        samples = (mark.read_bytes(), skip.read_bytes(), b'{"batch": 3, "tries": 2}')

    def run(data: bytes) -> None:
        skip.write_bytes(data)
        mark.write_bytes(data)
        (marks.folder / "tries.json").write_bytes(data)
        marks.marked()
        marks.skipped("t")
        failed_tries(checkpoint)
        with marks.reading("s: a.csv"):
            pass
        marks.skip(Deadly("t", 0, 5, "why"))
        assert marks.skipped("t") == {5: "why"}

    return samples, run


def registry_answers() -> Sample:
    """Answers of a schema registry: for a schema, and for what it names."""
    address = {"type": "record", "name": "Address", "fields": [{"name": "street", "type": ["null", "string"]}]}
    fields = [{"name": "n", "type": "long"}, {"name": "a", "type": {"type": "array", "items": "Address"}}]
    named = {"schema": json.dumps(address), "id": 2, "version": 1, "subject": "address"}
    whole = {
        "schema": json.dumps({"type": "record", "name": "A", "fields": fields}),
        "schemaType": "AVRO",
        "references": [{"name": "Address", "subject": "address", "version": 1}],
    }
    good = {"/schemas/ids/1": json.dumps(whole).encode(), "/subjects/address/versions/1": json.dumps(named).encode()}

    class Answers:
        """What opens URLs; half of the broken answers are those of what is named."""

        def __init__(self, data: bytes) -> None:
            self.data = data
            self.is_named = len(data) % 2 == 1

        def open(self, request: Any, timeout: float) -> io.BytesIO:
            assert timeout
            path = request.full_url.removeprefix("http://registry")
            is_broken = path.startswith("/subjects") is self.is_named
            return io.BytesIO(self.data if is_broken else good.get(path, b"{}"))

    def run(data: bytes) -> None:
        registry = SchemaRegistry(RegistryAddress(("http://registry",)))
        registry._opener = Answers(data)  # type: ignore[assignment]
        with suppress(UnknownSchema, WrongSchema):
            text, references = registry.schema(1)
            message_schema(text, references)

    return tuple(good.values()), run


KINDS: Mapping[str, Callable[[], Sample]] = {
    "journal": journals,
    "plan": plans,
    "record": records,
    "applied": applied_files,
    "settings": open_settings,
    "progress": progress,
    "backup": backups,
    "compaction": compaction_plans,
    "read-files": read_file_lists,
    "settled": settled_files,
    "crash-marks": crash_marks,
    "registry": registry_answers,
}

"""Check a deployment before anything starts: all that can be refused is refused here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, TypedDict

from job_engine.deployment import Deployment, places_in_words, unplaced
from job_engine.deployment_file import load_deployment
from job_engine.durable_files import JobFile
from job_engine.errors import in_plain_words
from job_engine.job.checkpoint import checkpoint_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.compilation import Compiled, compiled_as_kept, with_fields
from job_engine.job.file_changes import foretell, refuse_changed_files
from job_engine.job.lookup_files import changed_tables, refuse_unread_tables, with_kept_tables
from job_engine.job.plan_rules import refuse_missing_tables, refuse_name_conflicts, refuse_unknown_fields
from job_engine.job.written_journal import JOURNAL_VERSION, is_same, read_files
from job_engine.local_path import LocalPath
from job_engine.operator.bucket_state import STATE_VERSION
from job_engine.place import Place, RemotePath, names_in, refuse_missing_bucket
from job_engine.setting_keys import Engine
from job_engine.sinks.bucket_results import refuse_unwritable
from job_engine.sinks.kinds import MATCHES, Sink, publishing
from job_engine.sinks.tables import refuse_other_layout
from job_engine.sources.kinds import running_of
from job_engine.sources.listing.batch_log import RECORD, batches_of, driver_files
from job_engine.sources.listing.manifests import LIST_VERSION, MANIFEST_VERSION
from job_engine.wire.packed_rows import PACKED_VERSION
from job_engine.wire.program import Program
from querylang.changes import is_same_text
from querylang.dataclass import asdict, dataclass, replace
from querylang.errors import InputError, did_you_mean, is_passing, listed
from querylang.merging import FileChange
from querylang.plan.model import PLAN_VERSION, EventType, QueryPlan
from querylang.plan.routing import NOT_FED, has_chains
from querylang.printable import masked, warn
from querylang.running import Running
from querylang.system_errors import reason_of, refused
from querylang.system_limits import exists
from runtime.engine import STATE_VERSION as ENGINE_VERSION
from runtime.json_reader import DamagedJson, json_of_text, part_of

# Whether the driver's own logs in a checkpoint can be read.
#
# Spark reports a damaged one without its name, or as a mistake in JSON.

_LATEST = 2
"""So many of the newest entries of a log are read when a job starts."""

_RESTORE = "restore the whole checkpoint from a copy, or choose another one"


def refuse_damaged_logs(checkpoint: Place, engine: Engine) -> None:
    """Raise InputError for a file of the driver's logs that a restart reads and that is damaged."""
    files = driver_files(checkpoint)
    _refuse_damaged(files.folder / "metadata", 0, _RESTORE)
    for file in _newest(files.offsets):
        _refuse_damaged(file, 1, _RESTORE)
    # only Spark keeps the states of the micro-batches before
    repeated = "delete it, and its micro-batch is repeated" if engine is Engine.SPARK else _RESTORE
    for file in _newest(files.commits):
        _refuse_damaged(file, 1, repeated)


def _newest(log: Place) -> list[Place]:
    entries = [name for name in names_in(log) if name.isdecimal()]
    return [log / name for name in sorted(entries, key=int)[-_LATEST:]]


def _refuse_damaged(file: Place, first: int, way_out: str) -> None:
    """The lines of an entry from `first` on are JSON, or `-` for a source without an offset."""
    try:
        with part_of(file, f"To continue, {way_out}"):
            _parse(_lines(file)[first:])
    except FileNotFoundError:
        return


def _lines(file: Place) -> list[str]:
    try:
        return file.read_text("utf-8").splitlines()
    except FileNotFoundError:
        raise
    except OSError as error:
        if is_passing(error):
            raise
        raise DamagedJson(f"it cannot be read: {reason_of(error)}") from error


def _parse(lines: list[str]) -> None:
    if not lines:
        raise ValueError("it ends too early")
    for line in lines:
        if line != "-":
            json_of_text(line, object)


@dataclass(frozen=True, slots=True)
class Checked:
    """A deployment that can start.

    record: what its checkpoint is for
    is_new: whether the checkpoint has no record yet
    idle: queries that do not run, because their parameters have no values
    files: what the files say, before and now
    unapplied: the same by the rules that the checkpoint has, which hold until files are applied
    is_written: whether what the files said before is written down
    """

    deployment: Deployment
    program: Program
    record: checkpoint_record.Record
    is_new: bool
    idle: tuple[QueryPlan, ...]
    files: FileChange
    unapplied: FileChange
    is_written: bool

    @property
    def has_other_files(self) -> bool:
        """Whether the files mean something else than when they were last applied."""
        return not is_same(self.files.before, self.files.files)

    @property
    def has_other_texts(self) -> bool:
        """Whether the files have changed since they were last applied."""
        return not is_same(self.unapplied.before, self.unapplied.files)

    def divided_among(self, tasks: int | None) -> Checked:
        """The same for a checkpoint whose buckets are divided among so many tasks."""
        record = replace(self.record, tasks=tasks)
        return replace(
            self, program=checkpoint_record.placed(self.program, record, self.deployment.checkpoint), record=record
        )


def checked(deployment: Deployment, *, apply: bool = False) -> Checked:
    """Check and compile a deployment; writes nothing.

    apply: changed files are to be applied to the checkpoint

    Raises InputError or QueryErrors.
    """
    _refuse_unplaced(deployment)
    for source in deployment.sources:
        running_of(source).refuse_unreadable(source)
    places = [sink.place for sink in deployment.sinks.values() if sink.place is not None]
    for folder in (deployment.checkpoint, *places):
        refuse_missing_bucket(folder)
        _refuse_unwritable(folder)
    checkpoint_record.refuse_half_restored(deployment.checkpoint)
    kept = checkpoint_record.read_record(deployment.checkpoint)
    refuse_damaged_logs(deployment.checkpoint, deployment.engine)
    before = None if kept is None else read_files(deployment)
    compiled = compiled_as_kept(deployment, kept, before)
    if not compiled.feeds:
        warn(f"{deployment.checkpoint}: {NOT_FED}; begin with a new checkpoint, and queries feed each other")
    refuse_name_conflicts(deployment.file, compiled.plan)
    refuse_missing_tables(deployment, compiled.plan)
    refuse_unknown_fields(deployment, compiled.plan)
    earlier = compiled
    if kept is not None and compiled.known is None:
        earlier = _by_kept_rules(compiled, before, kept, deployment)
    is_written, same, program = before is not None, earlier.running, earlier.program(deployment)
    if kept is not None:
        _refuse_difference(
            deployment, kept, checkpoint_record.Record.of(deployment, program, earlier.schemas), is_written=is_written
        )
    before = same if before is None else before.annotated_by(same)
    unapplied = change = FileChange(before, same, returns=False)
    compiled = compiled if apply else earlier
    if apply:
        change, program = FileChange(before, compiled.running, returns=True), compiled.program(deployment)
    wanted = checkpoint_record.Record.of(deployment, program, compiled.schemas, compiled.fields)
    if kept is not None:
        wanted = replace(kept, plan=wanted.plan, queries=wanted.queries)
        wanted = wanted.feeding() if has_chains(program.plan().queries) else wanted
        refuse_changed_files(deployment, change, program)
    refuse_unread_tables(with_kept_tables(program, deployment), deployment)
    _refuse_unknown_events(deployment, (*compiled.plan.events, *change.before.events))
    for name, sink in deployment.sinks.items():
        refuse_unwritable(name, sink, compiled.plan)
    if MATCHES in deployment.sinks:
        refuse_other_layout(deployment.sinks[MATCHES])
    _refuse_doubled_results(deployment, wanted)
    deployment = with_fields(deployment, wanted.fields)
    checked = Checked(deployment, program, wanted, kept is None, compiled.idle, change, unapplied, is_written)
    return checked.divided_among(checked.record.tasks)


def _by_kept_rules(
    compiled: Compiled, before: Running | None, kept: checkpoint_record.Record, deployment: Deployment
) -> Compiled:
    """What the files say, by the rules that each text had when it was last applied.

    before: what the files said then; None = nobody has written it down
    """
    if before is None:
        texts = (compiled.template, *compiled.template.earlier())
        all_rules = [compiled.by_rules_of({query.name: query for query in text.queries}) for text in texts]
        return next((old for old in all_rules if old.program(deployment).fingerprint() == kept.plan), compiled)
    known = {name: query.current.template for name, query in before.queries.items()}
    old = compiled.template.by_rules_of(known)
    same = {
        query.name: query for query in old.queries if query.name in known and is_same_text(query, known[query.name])
    }
    return compiled.by_rules_of(same)


def _refuse_difference(
    deployment: Deployment, kept: checkpoint_record.Record, wanted: checkpoint_record.Record, *, is_written: bool
) -> None:
    """Raise InputError for another deployment; `is_written`: what the files said is known."""
    known = replace(kept, plan=wanted.plan, queries=wanted.queries) if is_written else kept
    checkpoint_record.refuse_difference(deployment.checkpoint, known, wanted, deployment)


def _refuse_doubled_results(deployment: Deployment, record: checkpoint_record.Record) -> None:
    folder = JobFolder(deployment.checkpoint)
    totals = {files.folder.name: files.numbers() for files in (folder.ledger.files, folder.progress)}
    refuse_other_results(deployment.checkpoint, record.identity, deployment.sinks, totals)
    for files in (folder.ledger.files, folder.progress):
        files.latest()  # a damaged file is refused before anything starts


def _refuse_unplaced(deployment: Deployment) -> None:
    """Raise InputError for tables that only a catalog could find: it is asked when a job starts."""
    for name in unplaced(deployment):
        raise InputError(f"{deployment.file}: where the table '{name}' is will be known once the job has started")


def _refuse_unwritable(folder: Place) -> None:
    """The folder, or else the nearest one above it that exists, must be a folder and writable."""
    if isinstance(folder, RemotePath):
        return  # what a store permits is seen when it is asked to do it
    existing = next(path for path in (folder, *folder.parents) if exists(path))
    if not existing.is_dir():
        raise InputError(f"{folder}: cannot be written: '{existing.name}' is not a folder")
    refusal = LocalPath.of(existing).refusal()
    if refusal is not None:
        raise refused(refusal, f"{folder}: nothing can be written to '{existing}'")


def _refuse_unknown_events(deployment: Deployment, events: Iterable[EventType]) -> None:
    known = list(dict.fromkeys(event.name for event in events))
    for source in deployment.sources:
        if source.event is not None and source.event not in known:
            raise InputError(
                f"{deployment.file}: the source '{source.name}' has the event type '{source.event}', which the queries"
                f" do not know{did_you_mean(source.event, known) or f'; they know {listed(known)}'}"
            )


def refuse_other_results(
    checkpoint: Place, identity: str, sinks: Mapping[str, Sink], totals: Mapping[str, Iterable[int]]
) -> None:
    """Raise InputError if a sink holds results that this checkpoint does not know.

    A checkpoint may be restored from a copy or deleted while the sinks stay. What would then be
    processed again has its results already. The micro-batch that was interrupted is the exception:
    it is repeated, and its results are written once.

    identity: of the checkpoint
    totals: by folder beside the checkpoint, the micro-batches that it has a file of
    """
    newest = batches_of(checkpoint).begun
    for name, sink in sinks.items():
        for result in publishing(sink).results(sink):
            if result.identity == identity and result.batch > newest:
                raise InputError(
                    _too_late(checkpoint, f"the sink '{name}' holds results", result.batch, newest, identity)
                )
            if result.identity != identity and not sink.shared:
                raise InputError(
                    f"the sink '{name}' holds results of another checkpoint, such as {result.place}: a job that begins"
                    " anew would write its matches a second time. Restore that checkpoint, choose an empty folder,"
                    " or set `shared: true` for the sink"
                )
    for folder, numbers in totals.items():
        last = max(numbers, default=-1)
        if last > newest:
            raise InputError(_too_late(checkpoint, f"its folder '{folder}' has counts", last, newest, identity))


def _too_late(checkpoint: Place, what: str, batch: int, newest: int, identity: str) -> str:
    reached = "has processed nothing yet" if newest < 0 else f"has reached micro-batch {newest}"
    return (
        f"{checkpoint}: {reached}, but {what} of micro-batch {batch}: it was restored from an older copy,"
        " or part of it was deleted, and would write results a second time. Restore the newest checkpoint,"
        f" or remove later files from the sinks ('{identity}-NUMBER-...') and from '{checkpoint / 'ensue'}'."
        " Delta tables remember their micro-batches: choose new ones"
    )


# Say that another release has written a checkpoint until now, while a backup can still be made.
#
# Each run notes its release, and the versions of what it writes: `<checkpoint>/ensue/release.json`.
# Every release reads a checkpoint whether it has this file or not.


@dataclass(frozen=True, slots=True)
class Release:
    """What writes a checkpoint.

    release: of Ensue; None = an earlier one than those that note it
    formats: the newest version that it writes, by what has versions
    """

    release: str | None
    formats: Mapping[str, int]

    def in_words(self, other: Release) -> str:
        """`Ensue 0.2.0 (plan 6)`: with the versions that another one has, and that differ."""
        known = self.formats.keys() & other.formats.keys()
        differing = [name for name in self.formats if name in known and self.formats[name] != other.formats[name]]
        name = "an earlier version of Ensue" if self.release is None else f"Ensue {self.release}"
        return name + (f" ({', '.join(f'{it} {self.formats[it]}' for it in differing)})" if differing else "")


class _Note(TypedDict):
    release: str
    formats: dict[str, int]


class _Record(TypedDict):
    version: int


def this_release(checkpoint: Place) -> Release:
    """What writes a checkpoint now."""
    has = JobFile(checkpoint / RECORD, _Record).readable()
    is_newest = has is not None and has["version"] == checkpoint_record.RECORD_VERSION
    formats = {
        "record": checkpoint_record.RECORD_VERSION if is_newest else checkpoint_record.SPARK_VERSION,
        "state": STATE_VERSION,
        "engine": ENGINE_VERSION,
        "rows": PACKED_VERSION,
        "plan": PLAN_VERSION,
        "manifest": MANIFEST_VERSION,
        "list": LIST_VERSION,
        "journal": JOURNAL_VERSION,
    }
    return Release(metadata.version("ensue"), formats)


def other_release(deployment: Deployment) -> Iterator[str]:
    """A line if another release has written the checkpoint until now; none for a new one."""
    before, own = _last_release(deployment.checkpoint), this_release(deployment.checkpoint)
    if before is not None and before != own:
        yield (
            f"{deployment.checkpoint}: was written by {before.in_words(own)} until now. Once {own.in_words(before)} has"
            f" run on it, the other may not read it any more: `ensue backup {deployment.file} DIR` before that keeps a"
            " way back"
        )


def note_release(checkpoint: Place) -> None:
    """Note that this release writes the checkpoint."""
    own = this_release(checkpoint)
    if _last_release(checkpoint) != own:
        _note(checkpoint).write(asdict(own))


def _last_release(checkpoint: Place) -> Release | None:
    """The release that has written a checkpoint; None = none has."""
    note = _note(checkpoint).readable()
    if note is not None:
        return Release(note["release"], note["formats"])
    record = JobFile(checkpoint / RECORD, _Record).readable()
    return None if record is None else Release(None, {"record": record["version"]})


def _note(checkpoint: Place) -> JobFile[_Note]:
    return JobFile(checkpoint / "ensue" / "release.json", _Note)


# Plan a start of a job: what its files would change on the checkpoint. Needs no driver.


@dataclass(frozen=True, slots=True)
class StartPlan:
    """What a start that applies the files would do.

    is_new: whether no job has run on the checkpoint yet
    is_needed: whether the job does not start without applying them
    changes: what it would change, a line each
    live: what comes from live changes and stays, a line each
    release: says that another release has written the checkpoint until now; None = it has not
    tables: what becomes of tables beside the stream, a line each
    """

    is_new: bool
    is_needed: bool = False
    changes: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    release: str | None = None
    tables: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


def plan_of(path: Path | str) -> StartPlan:
    """Plan a start of a deployment; writes nothing. Raises InputError or QueryErrors."""
    deployment = load_deployment(path)
    with in_plain_words(deployment.environment), places_in_words(deployment.places):
        checkpoint_record.refuse_other_engine(deployment)
        ready = checked(deployment, apply=True)
        if ready.is_new:
            return StartPlan(is_new=True)
        found = foretell(deployment, ready.files, ready.program)
        needed = ready.has_other_texts and bool(foretell(deployment, ready.unapplied, ready.program).outcomes)
        changes, live = (
            tuple(masked(line, deployment.environment) for line in lines) for lines in (found.lines(), found.live())
        )
        release = next(other_release(deployment), None)
        tables = tuple(changed_tables(deployment))
        return StartPlan(is_new=False, is_needed=needed, changes=changes, live=live, release=release, tables=tables)

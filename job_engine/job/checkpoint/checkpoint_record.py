"""Record what a checkpoint was made for, and refuse to continue it with something else.

The record is `<checkpoint>/ensue.json`. Drivers themselves notice neither another plan nor another
number of buckets, and Spark tells sources apart by position only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NotRequired, TypedDict

from job_engine.chance import new_name
from job_engine.deployment import Deployment
from job_engine.durable_files import RESTORE, JobFile, make_checkpoint
from job_engine.local_path import LocalPath
from job_engine.place import Place, files_below, names_in
from job_engine.setting_keys import Engine, FixedValues, Kept, differences
from job_engine.sources.listing.batch_log import LATER, RECORD, DriverFiles, driver_files
from job_engine.wire.gathering import Gathered, across_keys
from job_engine.wire.program import Program
from querylang.dataclass import asdict, dataclass, field, replace
from querylang.errors import InputError
from querylang.plan.expression import Type
from querylang.plan.routing import has_chains
from runtime.json_reader import OtherVersion
from runtime.json_shapes import Count

RECORD_VERSION = 8
"""Of checkpoints whose queries feed each other from bucket to bucket. Every later version reads
this one. This one reads version 7, which has no `crosses`, version 6, which has no `gathered`,
version 5, which has no `chains`, version 4, which has no `engine`, version 3, which has no `moved`
either, and version 2, which has no `tasks` either.

Version 1, of release 0.1, is refused.
"""

GATHERED_VERSION = 7
"""The version of other checkpoints whose queries feed each other."""

CHAINS_VERSION = 6
"""The version of checkpoints whose queries feed each other, and all are in one bucket."""

LOCAL_VERSION = 5
"""The version of other checkpoints with an `engine`."""

SPARK_VERSION = 4
"""The version of Spark's checkpoints: it has no `engine`, so earlier releases read it."""

IDENTITY = re.compile("[0-9a-f]{12}")
"""What names a checkpoint: names of result files begin with it."""

LOCK, COMPACTION_LOCK = "at-work", "compacting"
"""The names of the locks of a running job and of a compaction, in `ensue` of a checkpoint."""

LOCKS = frozenset({LOCK, COMPACTION_LOCK})
"""They may be there before there is a checkpoint."""

NO_FIELDS: Mapping[str, Sequence[str]] = MappingProxyType({})

Schemas = Mapping[str, Mapping[str, Type]]
"""Fields of event types that were inferred from data, by event type and field."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Where a driver began anew, with another number of buckets.

    folder: of the driver's files, below the checkpoint
    before: how many micro-batches the job had before
    manifest: the last manifest of those
    seeds: the folder below the checkpoint that has the state of each bucket; None = the driver has
        them
    """

    folder: Annotated[str, LATER]
    before: Count
    manifest: Count
    seeds: Annotated[str, re.compile("ensue/seeds-[0-9]+")] | None


def crosses(engine: Engine) -> bool:
    """Whether a driver takes what queries route from bucket to bucket within a micro-batch.

    Spark has one operator in a query, whose tasks cannot wait for each other.
    """
    return engine is Engine.LOCAL


@dataclass(frozen=True, slots=True)
class Record:
    """What a checkpoint was made for.

    identity: names the checkpoint; every new one has a new name
    settings: the job's own fixed settings
    sources: the fixed settings of each source, in order of their ranks
    plan: fingerprint of the program's plans
    queries: titles
    schemas: inferred event types, as text
    tasks: that the buckets are divided among; None = the buckets have no labels
    moved: None = the driver's files are in the checkpoint itself
    fields: by source: roles, by the names of their standard columns, which are fields; of older
        releases there are none
    engine: whose files the checkpoint has
    chains: whether queries of the checkpoint have fed each other
    gathered: as of `Program`, of the queries that it began with; None = all are in one bucket if
        any feed each other
    crosses: as of `Program`, if queries have fed each other; see `can_cross`
    """

    identity: Annotated[str, IDENTITY]
    settings: Mapping[str, Kept]
    sources: Mapping[str, Mapping[str, Kept]]
    plan: str
    queries: tuple[str, ...]
    schemas: Mapping[str, Mapping[str, str]]
    tasks: int | None = None
    moved: Moved | None = None
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    engine: Engine = Engine.SPARK
    chains: bool = False
    gathered: Gathered | None = None
    crosses: bool = False

    @staticmethod
    def of(
        deployment: Deployment, program: Program, schemas: Schemas, fields: Mapping[str, Sequence[str]] = NO_FIELDS
    ) -> Record:
        """The record of a new checkpoint."""
        identity = new_name(12)
        return Record(
            identity=identity,
            settings=_kept(deployment.fixed, identity),
            sources={source.name: _kept(source.fixed, identity) for source in deployment.all_sources},
            plan=program.fingerprint(),
            queries=tuple(query.title for query in program.plan().queries),
            schemas={name: {item: str(type_) for item, type_ in types.items()} for name, types in schemas.items()},
            fields={name: tuple(roles) for name, roles in fields.items()},
            engine=deployment.engine,
            chains=has_chains(program.plan().queries),
            gathered=program.gathered,
            crosses=program.crosses and has_chains(program.plan().queries),
        )

    @property
    def version(self) -> int:
        """The version that it is written in."""
        if self.chains:
            version = RECORD_VERSION if self.crosses else GATHERED_VERSION
            return CHAINS_VERSION if self.gathered is None else version
        return SPARK_VERSION if self.engine is Engine.SPARK else LOCAL_VERSION

    def to_plain(self) -> dict[str, Any]:
        """As it is written."""
        plain = {"version": self.version, **asdict(self)}
        later = {"engine": LOCAL_VERSION, "chains": CHAINS_VERSION, "gathered": GATHERED_VERSION}
        later["crosses"] = RECORD_VERSION
        return {key: value for key, value in plain.items() if self.version >= later.get(key, 0)}

    def gathered_of(self, program: Program) -> Gathered:
        """The gathered queries of the program that it began with."""
        if not self.chains:
            return ()
        if self.gathered is not None:
            return self.gathered
        return tuple((query.title, across_keys(program.sources)) for query in program.plan().queries)

    def feeding(self) -> Record:
        """The same once queries feed each other, which did not when the checkpoint was begun."""
        return self if self.chains else replace(self, chains=True, gathered=(), crosses=self.can_cross)

    @property
    def can_cross(self) -> bool:
        """As `Program.crosses`: what has fed others before stays where it is."""
        return self.crosses if self.chains else crosses(self.engine)

    def types(self) -> Schemas:
        """The inferred event types."""
        return {
            name: {item: Type.parse(type_) for item, type_ in types.items()} for name, types in self.schemas.items()
        }


FILES_NAME = "files.json"
"""The file inside a checkpoint with what its query files said; it is written before the record."""


def read_record(checkpoint: Place) -> Record | None:
    """The record of a checkpoint; None = a new one.

    Raises InputError for a folder that is not a checkpoint of Ensue.
    """
    file = _file(checkpoint)
    try:
        record = file.read()
    except OtherVersion as error:
        raise InputError(f"{checkpoint}: {_of_other_version(error.version)}") from error
    if record is None:
        if (checkpoint / "offsets").exists():
            raise InputError(f"{checkpoint}: is a Spark checkpoint that Ensue did not make; choose another folder")
        if checkpoint.is_dir() and not all(map(_is_ours, checkpoint.iterdir())):
            raise InputError(f"{checkpoint}: holds files that are not a checkpoint; choose an empty or a new folder")
        return None
    with file.checking():
        record.types()
    return record


def _file(checkpoint: Place) -> JobFile[Record]:
    way_out, versions = f"{RESTORE}, or choose another checkpoint", range(2, RECORD_VERSION + 1)
    return JobFile(checkpoint / RECORD, Record, way_out, versions, text=_text)


def _text(plain: dict[str, Any]) -> str:
    return json.dumps(plain, indent=2) + "\n"


def _is_ours(path: Place) -> bool:
    """Whether a run that ended before it wrote the record, or a restore, may have left this."""
    if path.name != "ensue":
        return path.name.startswith(".")
    names = {item.name for item in path.iterdir()} - LOCKS
    return all(name == FILES_NAME or name.startswith(".") for name in names)


def _of_other_version(version: object) -> str:
    if version == 1:
        return "was made by release 0.1, which this one cannot continue; choose a new checkpoint and new sinks"
    return (
        f"was written in version {version} of the record; this release reads version {RECORD_VERSION};"
        " continue it with the release that made it, or a later one"
    )


def write_record(checkpoint: Place, record: Record) -> None:
    """Write the record, before the first micro-batch."""
    make_checkpoint(checkpoint, None)
    _file(checkpoint).write(record.to_plain())


def refuse_other_engine(deployment: Deployment) -> None:
    """Raise InputError for a start on a checkpoint of another driver."""
    kept = read_record(deployment.checkpoint)
    if kept is not None and kept.engine is not deployment.engine:
        raise InputError(
            f"{deployment.checkpoint}: this checkpoint is of `engine: {kept.engine}`, and this start of `engine:"
            f" {deployment.engine}`. Continue it with `--engine {kept.engine}`, or move it: `ensue move"
            f" {deployment.file} --to {deployment.engine}`; nothing was changed"
        )


def refuse_difference(checkpoint: Place, kept: Record, wanted: Record, deployment: Deployment) -> None:
    """Raise InputError if a run is not what the checkpoint was made for."""
    found = [*_lists("sources", tuple(kept.sources), tuple(wanted.sources))]
    own = list(differences(kept.settings, deployment.fixed, kept.identity))
    found += own
    for source in deployment.all_sources:
        if source.name in kept.sources:
            others = differences(kept.sources[source.name], source.fixed, kept.identity)
            found += [f"in '{source.name}' {difference}" for difference in others]
    way_out = "Restore the deployment, or choose another checkpoint; nothing was changed"
    if not found and kept.plan != wanted.plan:  # and what the files said is not written down
        changed = list(_lists("queries", kept.queries, wanted.queries))
        found = changed or ["the queries, event types, orderings or values of parameters have changed"]
        way_out += ". Once a run has begun with the files as they were, `ensue run --apply` applies changed ones"
    if found and found == own and {**kept.settings, "buckets": ""} == {**wanted.settings, "buckets": ""}:
        raise InputError(
            f"{checkpoint}: this checkpoint was made for another number of buckets: {found[0]}. Restore the deployment,"
            f" or move the checkpoint: `ensue rebucket {deployment.file} {deployment.buckets}`; nothing was changed"
        )
    if found:
        raise InputError(
            f"{checkpoint}: this checkpoint was made for another deployment: {'; '.join(found)}. {way_out}"
        )


def _kept(values: FixedValues, identity: str) -> dict[str, Kept]:
    return {key: value.kept(identity) for key, value in values.items()}


def _lists(word: str, kept: tuple[str, ...], wanted: tuple[str, ...]) -> list[str]:
    if kept == wanted:
        return []
    removed = [item for item in kept if item not in wanted]
    new = [item for item in wanted if item not in kept]
    parts = [f"without {', '.join(removed)}"] * bool(removed) + [f"with {', '.join(new)}"] * bool(new)
    return [f"{word} {' and '.join(parts) or 'in another order'}"]


# The files that a driver keeps in a checkpoint, and their places.
#
# Where the state was moved to another number of buckets, or to another driver, they are in a folder
# below the checkpoint, and the files of before stay until a micro-batch has ended there.

_FIRST = ("metadata", "offsets", "commits", "sources", "state")
"""Names in a checkpoint that are a driver's."""

_SEEDS = re.compile("seeds-[0-9]+")


def new_places(checkpoint: Place, engine: str) -> tuple[str, str]:
    """Names of new folders below a checkpoint, for a driver's files and for states of buckets."""
    used = [name for name in (*names_in(checkpoint), *names_in(checkpoint / "ensue")) if "-" in name]
    numbers = [int(name.rpartition("-")[2]) for name in used if LATER.fullmatch(name) or _SEEDS.fullmatch(name)]
    number = max(numbers, default=0) + 1
    return f"{engine}-{number}", f"ensue/seeds-{number}"


def placed(program: Program, record: Record, checkpoint: Place) -> Program:
    """The program as it runs on a checkpoint."""
    moved = record.moved
    if moved is None:
        return replace(program, tasks=record.tasks)
    begins = moved.seeds is not None and not _has_ended_one(driver_files(checkpoint))
    seeds = str((checkpoint / str(moved.seeds)).resolve()) if begins else None
    return replace(program, tasks=record.tasks, before=moved.before, seeds=seeds)


def remove_old_files(checkpoint: Place, record: Record) -> Record:
    """Remove what moving the checkpoint has left, once a micro-batch has ended there.

    A move that was killed has left states that the record does not name.
    """
    moved = record.moved
    if moved is not None and not _has_ended_one(driver_files(checkpoint)):
        return record
    if moved is not None and moved.seeds is not None:
        record = replace(record, moved=replace(moved, seeds=None))
        write_record(checkpoint, record)
    remove_unused(checkpoint, record)
    return record


def remove_unused(checkpoint: Place, record: Record) -> None:
    """Remove all files of drivers, and states, that the record does not name."""
    used = ("", "") if record.moved is None else (record.moved.folder, record.moved.seeds or "")
    for name in names_in(checkpoint):
        is_first = name in _FIRST and record.moved is not None and record.moved.seeds is None
        if is_first or (LATER.fullmatch(name) and name != used[0]):
            _remove(checkpoint / name)
    for name in names_in(checkpoint / "ensue"):
        if _SEEDS.fullmatch(name) and f"ensue/{name}" != used[1]:
            _remove(checkpoint / "ensue" / name)


def _has_ended_one(files: DriverFiles) -> bool:
    """Whether a micro-batch has ended there: then the driver has the states of all buckets."""
    return any(name.isdecimal() for name in names_in(files.commits))


def _remove(place: Place) -> None:
    if isinstance(place, Path):
        LocalPath.of(place).remove_tree() if place.is_dir() else place.unlink(missing_ok=True)
        return
    for file in list(files_below(place)) or [place]:
        file.unlink(missing_ok=True)


# A restore that was interrupted: between an old checkpoint and a backup there is no half.


RestoreRows = list[tuple[Annotated[int, range(-1, 10**18)], str, bool]]
"""The restores of a checkpoint, oldest first: the micro-batch that each has gone back to, a name of
its own, and whether results behind that were removed."""


class _HalfRestored(TypedDict):
    """What is to be done.

    backup: what is restored
    files: by source, the paths of those to be moved back
    restores: of the checkpoint, with this one
    """

    backup: str
    files: dict[str, list[str]]
    restores: NotRequired[RestoreRows]


def half_restored(checkpoint: Place) -> JobFile[_HalfRestored]:
    """The file beside a checkpoint that is there while a backup takes its place."""
    return JobFile(
        checkpoint.with_name(f".{checkpoint.name}.restoring.json"), _HalfRestored, "Restore the backup again"
    )


class _Restores(TypedDict):
    restores: RestoreRows


def restores_file(checkpoint: Place) -> JobFile[_Restores]:
    """The file with the restores of a checkpoint; a backup has it, too."""
    return JobFile(checkpoint / "ensue" / "restores.json", _Restores, RESTORE, range(1, 2))


def refuse_half_restored(checkpoint: Place) -> None:
    """Raise InputError if a restore was interrupted: what is there then may be neither of both."""
    found = half_restored(checkpoint).read()
    if found is not None:
        raise InputError(
            f"{checkpoint}: a restore of it was interrupted; let it end first:"
            f" `ensue restore DEPLOYMENT {found['backup']} --replace --remove-results`"
        )

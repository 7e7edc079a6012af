"""Back up the checkpoint of a job that does not run, and restore it.

A backup is a list of files with their digests, beside a copy of the checkpoint. The list is written
last, so a backup that was interrupted is not taken for a whole one. What it does not name is not
restored.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from shutil import copyfileobj
from typing import Annotated, Any

from job_engine.chance import new_name
from job_engine.deployment import Deployment
from job_engine.deployment_file import load_deployment
from job_engine.durable_files import JobFile, indented, make_checkpoint, make_kept_folder, new_file, sync, sync_names
from job_engine.errors import in_plain_words
from job_engine.job.checkpoint import checkpoint_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.stages.prepare import finish_compactions
from job_engine.job.upkeep.opened_checkpoint import kept_record, open_record
from job_engine.job.written_journal import journal_file
from job_engine.local_path import LocalPath
from job_engine.place import Place, RemotePath, files_below, inside, is_within, local_copy, names_in
from job_engine.sinks.kinds import MicroBatch, Result, publishing
from job_engine.sources.kinds import MovedSince, running_of
from job_engine.sources.listing.batch_log import RECORD, batches_of, last_batch, last_begun, manifest_of
from job_engine.sources.listing.manifests import Manifest, ManifestFolder, ReadList, what_was_read
from querylang.dataclass import asdict, dataclass
from querylang.errors import InputError, counted
from querylang.errors import listed as enumerated
from querylang.printable import warn
from querylang.system_errors import refused
from runtime.json_shapes import Count

BACKUP_VERSION = 2
"""With SHA-256. Version 1 has CRC-32, and is read."""

_LIST = "backup.json"
_COPY = "checkpoint"


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What was copied.

    batch: the newest micro-batch that it knows; -1 = none
    files, size: how many, and their bytes
    removed: result files of later micro-batches that were removed
    returned: files of sources that were moved back from their archives
    before: where the checkpoint is that was there before; None = there was none
    """

    identity: str
    batch: int
    files: int
    size: int
    removed: int = 0
    returned: int = 0
    before: str | None = None

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


_Digest = Annotated[str, re.compile("[0-9a-f]{64}")] | Count


@dataclass(frozen=True, slots=True)
class _Listed:
    """The list of a backup.

    files: by name below the checkpoint, size and digest: of SHA-256, in older lists of CRC-32
    """

    name: str
    identity: Annotated[str, checkpoint_record.IDENTITY]
    batch: Annotated[int, range(-1, 10**18)]
    files: dict[str, tuple[Count, _Digest]]


def back_up(path: Path | str, target: Place) -> BackupReport:
    """Copy the checkpoint of a deployment to an empty or new folder; raises InputError."""
    deployment = load_deployment(path)
    with in_plain_words(deployment.environment):
        record = kept_record(deployment)
        if names_in(target):
            raise InputError(f"{target}: is not empty; choose a new folder for each backup")
        if is_within(target, deployment.checkpoint):
            raise InputError(f"{target}: is inside the checkpoint; choose a folder elsewhere")
        lock = JobFolder(deployment.checkpoint).lock()
        lock.acquire()
        try:
            make_checkpoint(target, deployment.mode)
            copied = _copied(deployment.checkpoint, target / _COPY)
        except OSError as error:
            _remove(target)
            raise refused(error, f"{target}: the backup cannot be written") from error
        finally:
            lock.release()
        batch = last_begun(deployment.checkpoint)
        plain = {"version": BACKUP_VERSION, "name": deployment.name, "identity": record.identity, "batch": batch}
        _list_file(target).write({**plain, "files": copied})
        return BackupReport(record.identity, batch, len(copied), sum(size for size, _ in copied.values()))


def restore(
    path: Path | str,
    source: Place,
    *,
    replace: bool = False,
    remove_results: bool = False,
    accept_loss: bool = False,
) -> BackupReport:
    """Make the checkpoint of a deployment that of a backup.

    replace: put a checkpoint that is there aside
    remove_results: remove the result files of micro-batches that the backup does not know: the job
        writes them again
    accept_loss: continue without files that were read behind the backup and then removed

    Files that were archived behind the backup are moved back: the job reads them again. Raises
    InputError; until all is known to be well, nothing is changed.
    """
    deployment = load_deployment(path)
    with in_plain_words(deployment.environment):
        listed = _list_of(source)
        refuse_damage(source, listed)
        if any(isinstance(digest, int) for _, digest in listed.files.values()):
            warn(
                f"{source}: is of an earlier release: its files are compared by CRC-32, which does not tell forged ones"
            )
        record = checkpoint_record.read_record(source / _COPY)
        assert record is not None, "a whole backup has a record"
        _refuse_other_buckets(source, record, deployment)
        wanted = open_record(deployment, record, source / _COPY)
        checkpoint_record.refuse_difference(source, record, wanted, deployment)
        mark = checkpoint_record.half_restored(deployment.checkpoint).read()
        if mark is not None and mark["backup"] != str(source.resolve()):
            checkpoint_record.refuse_half_restored(deployment.checkpoint)
        lock = JobFolder(deployment.checkpoint).lock()
        lock.refuse_if_held()
        is_there = _is_there(deployment.checkpoint)
        if is_there and not replace:
            raise InputError(f"{deployment.checkpoint}: there is a checkpoint; add --replace to put it aside")
        if is_there:
            lock.acquire()
        try:
            finish_compactions(deployment, record.identity)
            last = _last_kept(deployment.checkpoint, source / _COPY, is_there=is_there)
            by_sink = _later_results(deployment, record, last, last_batch(source / _COPY))
            later = [place for places in by_sink.values() for place in places]
            if later and not remove_results:
                raise InputError(_would_double(later, last))
            restores = _restores(deployment, source, last, removes=bool(later))
            archived = _archived_since(deployment, record, source / _COPY, accepts_loss=accept_loss)
            before = _exchanged(deployment, source, listed, archived, restores)
            for name, places in by_sink.items():
                sink = deployment.sinks[name]
                publishing(sink).remove(sink, places, record.identity, last)
            for sink in deployment.sinks.values():  # of what the job had begun behind the backup
                publishing(sink).remove_leftovers(sink, MicroBatch(record.identity, last + 1), ())
            for own in deployment.all_sources:
                running_of(own).move_back(own.own, archived.get(own.name, ()))
            checkpoint_record.half_restored(deployment.checkpoint).remove()
            sync(deployment.checkpoint.parent)
        finally:
            lock.release()
        size, returned = sum(size for size, _ in listed.files.values()), sum(map(len, archived.values()))
        return BackupReport(listed.identity, listed.batch, len(listed.files), size, len(later), returned, before)


def _exchanged(
    deployment: Deployment,
    source: Place,
    listed: _Listed,
    archived: Mapping[str, Sequence[str]],
    restores: checkpoint_record.RestoreRows,
) -> str | None:
    """Let the backup take the place of the checkpoint; where that is now, None = there was none."""
    checkpoint, mark = deployment.checkpoint, checkpoint_record.half_restored(deployment.checkpoint)
    draft = _drafted(source / _COPY, checkpoint, listed, deployment.mode)
    mark.write({"backup": str(source.resolve()), "files": archived, "restores": restores})
    before = _put_aside(checkpoint)
    _place(draft, source / _COPY, checkpoint, listed)
    checkpoint_record.restores_file(checkpoint).write({"version": 1, "restores": restores})
    return before


def _last_kept(checkpoint: Place, backup: Place, *, is_there: bool) -> int:
    """The last micro-batch whose results stay: the job writes those behind it again.

    What was begun in a backup is repeated as it was then. The job may have planned it anew since,
    or have gone back behind it: its results are of other records then.

    is_there: whether there is a checkpoint that tells
    """
    mark = checkpoint_record.half_restored(checkpoint).read()
    if mark is not None and mark.get("restores"):
        return mark["restores"][-1][0]
    batches = batches_of(backup)
    if batches.open is None or batches.first_open is None:
        return batches.ended
    if not is_there:
        warn(
            f"{backup.parent}: has micro-batch {batches.open} begun, whose results stay where sinks have them; nothing"
            " here says whether the job has planned it anew since, with a smaller limit"
        )
        return batches.open
    gone_back = [batch for batch, *_ in _restores_of(checkpoint) if batches.ended <= batch < batches.open]
    same = batches.ended
    if _same(journal_file(backup).read, journal_file(checkpoint).read):
        while same < batches.open and _same(*(partial(_planned, place, same + 1) for place in (backup, checkpoint))):
            same += 1
    return min([same, *gone_back])


def _planned(checkpoint: Place, batch: int) -> Manifest:
    return ManifestFolder.of(checkpoint).read(manifest_of(checkpoint, batch))


def _same(own: Callable[[], object], now: Callable[[], object]) -> bool:
    """Whether both are the same, and can be read."""
    try:
        return own() == now()
    except InputError:
        return False


def _restores(deployment: Deployment, source: Place, last: int, *, removes: bool) -> checkpoint_record.RestoreRows:
    """The restores of the checkpoint, with this one.

    last: as of `_last_kept`
    removes: whether results behind it are removed

    Raises InputError for a backup that an earlier restore has passed by: what the job wrote between
    that and this backup was removed, or was written anew in other micro-batches.
    """
    checkpoint = deployment.checkpoint
    mark = checkpoint_record.half_restored(checkpoint).read()
    if mark is not None and "restores" in mark:
        return mark["restores"]
    now, own = (_restores_of(place) for place in (checkpoint, source / _COPY))
    common = min(len(now), len(own))
    behind = now[common:]
    is_untouched = bool(behind) and last_begun(checkpoint) <= behind[-1][0] and not behind[-1][2]
    ended = last_batch(source / _COPY)
    passed = [batch for batch, *_ in (behind[:-1] if is_untouched else behind) if batch < ended]
    if now[:common] != own[:common] or passed:
        back = min(passed, default=now[0][0])
        raise InputError(
            f"{source}: ends with micro-batch {ended}, and since it was made the job has gone back to"
            f" {'its beginning' if back < 0 else f'micro-batch {back}'}: what it wrote between them was removed, or written anew, and"
            " this backup would not write it again. Choose a backup that ends there or before, or begin with a new"
            " checkpoint and new sinks; nothing was changed"
        )
    return [*now, *own[common:], (last, new_name(8), removes)]


def _restores_of(checkpoint: Place) -> checkpoint_record.RestoreRows:
    found = checkpoint_record.restores_file(checkpoint).read()
    return [] if found is None else found["restores"]


def _refuse_other_buckets(source: Place, record: checkpoint_record.Record, deployment: Deployment) -> None:
    before, now = str(record.settings["buckets"]), str(deployment.buckets)
    if before != now:
        raise InputError(
            f"{source}: is of {before} buckets, and the job has {now}: set `buckets: {before}` in {deployment.file},"
            f" restore it, then `ensue rebucket {deployment.file} {now}`; nothing was changed"
        )


def _archived_since(
    deployment: Deployment, record: checkpoint_record.Record, backup: Place, *, accepts_loss: bool
) -> dict[str, list[str]]:
    """By source, the paths of files to be moved back; raises InputError for what is lost."""
    before = what_was_read(backup)
    now = _read_until_now(deployment.checkpoint, record)
    mark = checkpoint_record.half_restored(deployment.checkpoint).read()
    found: dict[str, list[str]] = {}
    for source in deployment.all_sources:
        known = set(mark["files"].get(source.name, ())) if mark is not None else set()
        memory = None if now is None else now.of(source.name, source.format)
        moved = running_of(source).moved_since(source.own, memory, before.of(source.name, source.format))
        if moved is None:
            continue
        if moved.unnamed is None and mark is None:
            warn(
                f"source '{source.name}': there is no checkpoint that says which files were read behind the backup: with"
                f" `after: {moved.way}` the job reads those again that are in its folder"
            )
        gone = [path for path in moved.gone if path not in known]
        if (gone or moved.unnamed) and not accepts_loss:
            raise InputError(_would_lose(source.name, gone, moved))
        found[source.name] = sorted({*moved.archived, *known})
    return {name: paths for name, paths in found.items() if paths}


def _would_lose(name: str, gone: Sequence[str], moved: MovedSince) -> str:
    files = len(gone) + (moved.unnamed or 0)
    names = enumerated(f"'{path}'" for path in gone[:3]) + (", …" if len(gone) > 3 else "")
    return (
        f"source '{name}': {counted(files, 'file')} that the job has read behind the backup {_are(files)} not there any"
        f" more (`after: {moved.way}`){names and f': {names}'}: their records would be lost. Put them back into the"
        " folder of the source, or add --accept-loss; nothing was changed"
    )


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _read_until_now(checkpoint: Place, record: checkpoint_record.Record) -> ReadList | None:
    """What the job has read until now; None = its checkpoint is not there, or is another one."""
    kept = checkpoint_record.read_record(checkpoint)
    return what_was_read(checkpoint) if kept is not None and kept.identity == record.identity else None


def refuse_damage(source: Place, listed: _Listed) -> None:
    """Raise InputError for a file that is missing, has changed, or is not in the list."""
    copy = source / _COPY
    for name, told in listed.files.items():
        file = inside(copy, name)
        try:
            _refuse_changed(file, file, told)
        except OSError as error:
            raise refused(error, f"{file}: the backup is not whole") from error
    more = sorted({name for name, _ in _files(copy)} - listed.files.keys())
    if more:
        raise InputError(f"{copy / more[0]}: is not in the list of the backup; remove it, or choose another backup")


def _refuse_changed(file: Place, shown: Place, told: tuple[int, str | int]) -> None:
    """Raise InputError for a file that is not the one that was listed."""
    if _digest(file, told[1]) != told:
        raise InputError(f"{shown}: has changed since the backup was made; choose another backup")


def _list_of(source: Place) -> _Listed:
    found = _list_file(source).read()
    if found is None:
        raise InputError(f"{source}: is not a whole backup: it has no file '{_LIST}'")
    return found


def _list_file(folder: Place) -> JobFile[_Listed]:
    versions = range(1, BACKUP_VERSION + 1)
    return JobFile(folder / _LIST, _Listed, "Choose another backup", versions, text=indented)


def _copied(checkpoint: Place, target: Place) -> dict[str, tuple[int, str | int]]:
    """Copy all files but the lock; gives sizes and digests by name below the checkpoint."""
    found = {}
    for name, file in _files(checkpoint):
        _copy(file, target / name)
        found[name] = _digest(target / name)
    if isinstance(target, Path):
        sync_names(LocalPath.of(target))
    return dict(sorted(found.items()))


def _files(folder: Place) -> Iterator[tuple[str, Place]]:
    """The files of a checkpoint, which has no links: raises InputError for one."""
    start = len(str(folder)) + 1
    if isinstance(folder, Path):
        for inner, folders, names in LocalPath.of(folder).walk_below():
            for path in (inner / name for name in (*folders, *names)):
                if path.is_symlink():
                    raise InputError(f"{path}: is a link, and a checkpoint has none")
    for file in files_below(folder):
        name = str(file)[start:]
        if name != f"ensue/{checkpoint_record.LOCK}" and not name.endswith(".draft"):
            yield name, file


def _copy(file: Place, target: Place) -> None:
    with local_copy(file) as here:
        if isinstance(target, RemotePath):
            target.upload(here)
            return
        make_kept_folder(target.parent)
        with here.open("rb") as content, new_file(target) as written:
            copyfileobj(content, written)
        sync(target)


def _digest(file: Place, like: str | int = "") -> tuple[int, str | int]:
    """Size and SHA-256 of a file; CRC-32 if the other digest is a number."""
    size, checksum, sha = 0, 0, hashlib.sha256()
    with local_copy(file) as here, here.plain_file() as stream:
        while block := stream.read(1 << 20):
            size, checksum = size + len(block), zlib.crc32(block, checksum)
            sha.update(block)
    return size, checksum if isinstance(like, int) else sha.hexdigest()


def _later_results(
    deployment: Deployment, record: checkpoint_record.Record, batch: int, ended: int
) -> dict[str, list[Place]]:
    """By sink, the files of results behind micro-batch `batch`; InputError if some have to stay.

    ended: the micro-batch behind which the job begins: it repeats those up to `batch`
    """
    found: dict[str, list[Place]] = {}
    for name, sink in deployment.sinks.items():
        kind = publishing(sink)
        results = [result for result in kind.results(sink) if result.identity == record.identity]
        if not results:  # a topic only tells the last one
            last = kind.last_published(sink, record.identity)
            kind.end(record.identity)
            results = [Result(record.identity, last, "")]
        kind.refuse_joined((result for result in results if ended < result.batch <= batch), ended)
        later = [result for result in results if result.batch > batch]
        if later:
            found[name] = kind.removable(name, sink, later, batch)
    return found


def _would_double(later: list[Place], batch: int) -> str:
    return (
        f"sinks have {counted(len(later), 'file')} of micro-batches behind {batch}, which the backup does not know, such"
        f" as {later[0]}: the job would write their results again. Add --remove-results to remove them"
    )


def _is_there(checkpoint: Place) -> bool:
    """Whether there is more than locks of what has ended."""
    own = set(names_in(checkpoint / "ensue"))
    return bool(set(names_in(checkpoint)) - {"ensue"}) or not own <= checkpoint_record.LOCKS


def _put_aside(checkpoint: Place) -> str | None:
    """Rename the checkpoint that is there; where it is now, None = there was none."""
    if not _is_there(checkpoint) or isinstance(checkpoint, RemotePath):
        return None
    aside = checkpoint.with_name(f"{checkpoint.name}.before-{new_name(8)}")
    checkpoint.rename(aside)
    sync(aside.parent)
    return str(aside)


def _drafted(copy: Place, checkpoint: Place, listed: _Listed, mode: int | None) -> LocalPath | None:
    """A copy of what is listed, beside a local checkpoint, on the disk; None = it is in a store."""
    if isinstance(checkpoint, RemotePath):
        if _is_there(checkpoint):
            raise InputError(f"{checkpoint}: in a store a checkpoint cannot be renamed; move its objects away first")
        return None
    draft = LocalPath.of(checkpoint.with_name(f".{checkpoint.name}.{new_name(8)}.draft"))
    try:
        make_checkpoint(draft, mode)
        _copy_listed(copy, draft, listed)
        sync_names(draft)
    except InputError:
        _remove(draft)
        raise
    except OSError as error:
        _remove(draft)
        raise refused(error, f"{checkpoint}: cannot be written", "Nothing was restored") from error
    return draft


def _place(draft: LocalPath | None, copy: Place, checkpoint: Place, listed: _Listed) -> None:
    """Let a copy be the checkpoint: a local one appears whole, a store gets the record last."""
    if draft is None:
        try:
            _copy_listed(copy, checkpoint, listed)
        except OSError as error:
            _remove(checkpoint)
            raise refused(error, f"{checkpoint}: cannot be written", "Nothing was restored") from error
        return
    if _is_there(checkpoint):
        _remove(draft)
        raise InputError(f"{checkpoint}: a job was started meanwhile; stop it, and restore the backup again")
    _remove(checkpoint)  # at most locks of what has ended
    draft.rename(str(checkpoint))
    sync(checkpoint.parent)


def _copy_listed(copy: Place, target: Place, listed: _Listed) -> None:
    """Copy what is listed, the record last.

    Each copy is compared: a file may have been exchanged since.
    """
    for name in sorted(listed.files, key=lambda name: name == RECORD):
        file = inside(copy, name)
        _copy(file, target / name)
        _refuse_changed(target / name, file, listed.files[name])


def _remove(folder: Place) -> None:
    """Remove what was copied so far."""
    if isinstance(folder, Path):
        LocalPath.of(folder).remove_tree()
        return
    for file in list(files_below(folder)):
        file.unlink(missing_ok=True)

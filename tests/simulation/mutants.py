"""Deliberate mistakes in the protocol of a job, each in a copy of the code in turn: which of them some worlds find.

`python -m tests.simulation.mutants --seeds 400`
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("querylang", "runtime", "job_engine", "spark_backend", "ensue", "tests")


@dataclass(frozen=True, slots=True)
class Mistake:
    """One place of the code that is made wrong; `kind`: the class of mistakes that it is of.

    jobs: the kind of jobs that can meet it; "" = any
    """

    kind: str
    file: str
    right: str
    wrong: str
    jobs: str = ""


_DURABLE, _RUN, _LOG = "job_engine/durable_files.py", "job_engine/local/run.py", "job_engine/local/run_log.py"
_BATCH, _STATE = "job_engine/job/batch_writer.py", "job_engine/operator/bucket_state.py"
_WRITING, _SINKS = "job_engine/sinks/folder/writing.py", "job_engine/sinks/run_sinks.py"
_LISTER, _PLANNING = "job_engine/sources/listing/lister.py", "job_engine/sources/folder/planning.py"

_MANIFESTS, _CRASHES = "job_engine/sources/listing/manifests.py", "job_engine/sources/crash_marks.py"
_FOLDER, _LOCK = "job_engine/job/checkpoint/job_folder.py", "job_engine/job/checkpoint/locks.py"
_WORKER, _STARTED = "job_engine/local/worker.py", "job_engine/job/stages/start.py"
_TOPICS, _CONSUMING = "job_engine/sinks/topics/publishing.py", "job_engine/sources/topics/consuming.py"
_ASKING = "job_engine/kafka_broker.py"
_GROUPS, _CHAINS = "job_engine/wire/partition_groups.py", "runtime/engine/chains.py"
_PATHS = "runtime/engine/paths.py"
_LOCAL = "job_engine/local/buckets.py"
_BACKUP, _MOVING = "job_engine/job/upkeep/backup.py", "job_engine/job/upkeep/moving.py"
_COMPACTION = "job_engine/sinks/folder/compaction.py"
_HISTORY, _HISTORY_RUN = "job_engine/job/history/running.py", "job_engine/operator/history_run.py"
_CHANGE, _JOURNAL = "job_engine/job/stages/between_batches.py", "job_engine/job/journal.py"
_JOINING = "job_engine/operator/joining.py"
_OFFSETS = "job_engine/sources/topics/planning.py"
_TABLES, _COMMITS = "job_engine/sinks/table/publishing.py", "job_engine/delta_publishing.py"
_VERSIONS, _DATA = "job_engine/sources/table/planning.py", "job_engine/sources/table/reading.py"

MISTAKES = (
    # nothing waits for the disk
    Mistake("sync", _DURABLE, "    for draft, _ in pairs:\n        sync(draft)\n", ""),
    Mistake("sync", _DURABLE, "in sorted({path.parent for _, path in local}):", "in ():"),
    Mistake("sync", _DURABLE, "mkdir(exist_ok=True)\n        _sync_name(path)\n", "mkdir(exist_ok=True)\n"),
    Mistake("sync", _DURABLE, "& _OF_FOLDERS)\n        _sync_name(path)\n", "& _OF_FOLDERS)\n"),
    Mistake("sync", _DURABLE, "    for _, place in files:\n        sync(place)\n", ""),
    Mistake("sync", _DURABLE, "is None else mode)\n        _sync_name(path)\n", "is None else mode)\n"),
    Mistake("sync", _STATE, "        size += len(data)\n    sync(folder)\n", "        size += len(data)\n"),
    Mistake("sync", _STATE, "        complete([(here, place)])\n", ""),
    # a file is seen before it is whole
    Mistake(
        "draft",
        _DURABLE,
        "    publish([(draft, path)])\n",
        "    draft.replace(path)\n    sync(path)\n    sync(path.parent)\n",
    ),
    Mistake(
        "draft",
        _DURABLE,
        '    with new_file(draft) as file:\n        file.write(text.encode("utf-8"))\n    publish([(draft, path)])\n',
        '    with new_file(path) as file:\n        file.write(text.encode("utf-8"))\n    sync(path)\n    sync(path.parent)\n',
    ),
    Mistake(
        "draft",
        _WRITING,
        '                draft = folder / f".{path.name.removesuffix(self._suffix)}.{self._attempt}.draft"',
        "                draft = path",
    ),
    # one thing is done before another that has to come first
    Mistake("order", _RUN, "        self._end_publishing()\n        began, writer", "        began, writer"),
    Mistake(
        "order",
        _RUN,
        "        self._end_recording()\n        self._end_publishing()\n",
        "        self._end_recording()\n",
    ),
    Mistake(
        "order",
        _RUN,
        "        self._end_recording()\n        self._end_publishing()\n",
        "        self._end_publishing()\n",
    ),
    Mistake(
        "order",
        _RUN,
        '            self._log.begin(entry)\n            self._pace.at("begun")\n',
        '            self._pace.at("begun")\n',
    ),
    Mistake(
        "order",
        _RUN,
        '        writer.save()\n        self._pace.at("totals")\n        self._log.commit(',
        "        self._log.commit(",
    ),
    Mistake(
        "order",
        _RUN,
        "        began, writer = monotonic(), self._order.writer\n",
        "        began, writer = monotonic(), self._order.writer\n        self._log.commit(Committed(self._last.number, range(self._order.program.buckets), self._wakes))\n",
    ),
    Mistake(
        "order",
        _RUN,
        '            self._lister.record()\n            self._pace.at("manifest")\n            self._log.begin(entry)\n',
        '            self._log.begin(entry)\n            self._pace.at("manifest")\n            self._lister.record()\n',
    ),
    # numbers and moments
    Mistake(
        "number",
        _RUN,
        "self._lister.tasks(self._last.manifest, entry.manifest)",
        "self._lister.tasks(entry.manifest - 1, entry.manifest)",
    ),
    Mistake(
        "number",
        _RUN,
        "Begun(self._last.number + 1, moment, manifest)",
        "Begun(self._last.number + 1, moment, manifest - (manifest > 2))",
    ),
    Mistake("number", _LOG, "        first = self.last_committed + 1\n", "        first = self.last_committed + 2\n"),
    Mistake("number", _LOG, "return max(self._committed, default=-1)", "return max(self._begun, default=-1)"),
    Mistake(
        "number", _LOG, "if name.isdecimal() and int(name) != last:", "if name.isdecimal() and int(name) != last - 1:"
    ),
    Mistake(
        "number",
        _BATCH,
        "return Totals(batch - 1, folder.ledger.total(before=batch)",
        "return Totals(batch - 1, folder.ledger.total()",
    ),
    Mistake("number", _BATCH, "folder.last_progress(before=batch))", "folder.last_progress())"),
    Mistake(
        "number",
        _LISTER,
        "for number in self._manifests.numbers() if number > start)",
        "for number in self._manifests.numbers() if number > start + 1)",
    ),
    Mistake("number", _WORKER, "self._program.before + batch)", "self._program.before + batch // 2)"),
    # what is repeated is not what it was
    Mistake(
        "repeat", _RUN, "        for entry in self._log.begun():\n", "        for entry in self._log.begun()[:1]:\n"
    ),
    Mistake("repeat", _RUN, "        for entry in self._log.begun():\n", "        for entry in ():\n"),
    Mistake("repeat", _RUN, "dict(saved.wakes), self._log.entry(saved.number)", "{}, self._log.entry(saved.number)"),
    Mistake(
        "repeat",
        _RUN,
        "            None if saved is None else self._log.states_of(saved.number),\n",
        "            None,\n",
    ),
    Mistake("repeat", _SINKS, "    if is_first or any(bucket.is_repeated for bucket in found):\n", "    if False:\n"),
    Mistake(
        "repeat",
        _WRITING,
        "        self._batch = batch.name\n",
        '        self._batch = f"{batch.identity}-{batch.number:08d}-{attempt}"\n',
    ),
    Mistake(
        "repeat",
        _WORKER,
        "return read_seed(place_of_plain(self._states), bucket) if bucket in self._saved else None",
        "return None",
    ),
    # what is half there is believed, or what is there is not
    Mistake(
        "belief",
        _LOG,
        "        for name in names_in(self._states):\n",
        "        for name in names_in(self._states)[:0]:\n",
    ),
    Mistake(
        "belief",
        _PLANNING,
        "            if is_passing(error):  # it says nothing about the file\n                raise\n",
        "",
    ),
    Mistake(
        "belief",
        "job_engine/sources/folder/listing.py",
        "            if is_passing(error):  # left out, it would be read behind later files\n                raise\n",
        "",
    ),
    Mistake(
        "belief",
        "job_engine/sources/folder/reading.py",
        "        except PassingError:\n            raise  # the system failed, which says nothing about the file\n",
        "",
    ),
    # nobody learns of it
    Mistake("silence", _RUN, "            publishing.result()\n", "            publishing.exception()\n"),
    Mistake(
        "silence",
        _DURABLE,
        "    except OSError as error:\n        if error.filename is None:\n            error.filename = str(path)\n        raise\n",
        "    except OSError:\n        pass\n",
    ),
    # a run does not notice
    Mistake(
        "end",
        _RUN,
        "            self._process(entry, may_be_repeated=True)\n        self._commit()\n",
        "            self._process(entry, may_be_repeated=True)\n",
    ),
    Mistake(
        "end",
        _RUN,
        "            if self._open >= MOST_OPEN or (self._open and monotonic() >= self._next_commit):\n                self._commit()\n",
        "            pass\n",
    ),
    Mistake(
        "end",
        _RUN,
        "            elif self._order.is_bounded:\n                break\n",
        "            elif self._order.is_bounded:\n                continue\n",
    ),
    # topics
    Mistake(
        "repeat",
        _TOPICS,
        "        self.published = max(place.offset, 0)\n",
        "        self.published = 0\n",
        jobs="TOPICS",
    ),
    Mistake(
        "repeat",
        _TOPICS,
        "        if self._by_others is not None and batch < self._by_others:\n            return\n",
        "",
        jobs="TOPICS",
    ),
    Mistake("number", _TOPICS, "[self._place(batch + 1)], group", "[self._place(batch)], group", jobs="TOPICS"),
    Mistake("silence", _TOPICS, "        self._answered(note_again)\n", "", jobs="TOPICS"),
    Mistake(
        "end",
        _TOPICS,
        "                self._answered(lambda: self._producer.abort_transaction(ANSWER_WITHIN))\n",
        "                pass\n",
        jobs="TOPICS",
    ),
    Mistake(
        "belief",
        _CONSUMING,
        '"isolation.level": "read_committed",',
        '"isolation.level": "read_uncommitted",',
    ),
    Mistake(
        "belief",
        _ASKING,
        'self._is_committed = client.get("isolation.level", "read_committed") == "read_committed"',
        "self._is_committed = False",
        jobs="TOPICS",
    ),
    Mistake(
        "number", _CONSUMING, "self.next <= offset < self.wanted.until", "self.next <= offset <= self.wanted.until"
    ),
    Mistake(
        "number",
        _CONSUMING,
        "self.next = max(self.next, offset + 1)",
        "self.next = max(self.next, offset + 2)",
        jobs="TOPICS",
    ),
    # a lock is not asked, and a moment goes back
    Mistake("lock", _LOCK, "                fcntl.flock(file, kind | fcntl.LOCK_NB)\n", "                pass\n"),
    Mistake(
        "clock",
        _RUN,
        "moment = max(int(self._pace.now() * 1000), self._last.timestamp + 1)",
        "moment = int(self._pace.now() * 1000)",
    ),
    # what was done is lost
    Mistake(
        "lost",
        "job_engine/sources/folder/after_reading.py",
        "        _move(file, place, stamp)\n        sync(place.parent)\n",
        "        _move(file, place, stamp)\n",
    ),
    Mistake(
        "lost", _SINKS, "        kept = {draft.place for _, draft in (*drafts, *own)}\n", "        kept = set[str]()\n"
    ),
    Mistake("lost", _LOG, "if number <= last - KEPT]", "if number <= last]"),
    Mistake("lost", _BATCH, "            self.folder.progress.write(self.totals.batch, plain)\n", ""),
    Mistake("lost", _BATCH, "before = self.totals or Totals.before", "before = Totals.before"),
    Mistake(
        "number",
        _BATCH,
        "self.folder.ledger.write(self.totals.batch,",
        "self.folder.ledger.write(self.totals.batch + 1,",
    ),
    Mistake(
        "lost",
        "job_engine/job/written_journal.py",
        "    journal_file(checkpoint).write(journal_to_plain(journal))\n",
        "",
    ),
    # queries that feed each other are in other buckets, or what crosses goes elsewhere, or in another order
    Mistake(
        "bucket",
        "job_engine/job/checkpoint/checkpoint_record.py",
        "        return self.crosses if self.chains else crosses(self.engine)\n",
        "        return not self.chains\n",
        jobs="CHAINS",
    ),
    Mistake("bucket", _GROUPS, "self.taking.get(kind, ()):\n", "self.taking.get(kind, ())[:1]:\n", jobs="CHAINS"),
    Mistake("bucket", _WORKER, "        step.kept = [parcel for", "        _ = [parcel for", jobs="CHAINS"),
    Mistake(
        "bucket",
        _PATHS,
        "_ordered(key)) for key in routed.keys]\n        places",
        "()) for key in routed.keys]\n        places",
        jobs="CHAINS",
    ),
    Mistake("bucket", _CHAINS, "found[is_record] = self._not_behind(", "_ = self._not_behind(", jobs="CHAINS"),
    Mistake("bucket", _LOCAL, "{worker: crossed[worker] for worker in asked}", "{0: crossed[0]}", jobs="CHAINS"),
    Mistake(
        "bucket",
        "job_engine/job/checkpoint/checkpoint_record.py",
        "            return self.gathered\n",
        "            return ()\n",
        jobs="CHAINS",
    ),
    # what people do between two lives
    Mistake("care", _BACKUP, "    if isinstance(target, Path):\n        sync_names(LocalPath.of(target))\n", ""),
    Mistake("care", _BACKUP, "        sync_names(draft)\n", ""),
    Mistake(
        "care",
        _BACKUP,
        '    mark.write({"backup": str(source.resolve()), "files": archived, "restores": restores})\n',
        "",
    ),
    Mistake(
        "care",
        _BACKUP,
        "                running_of(own).move_back(own.own, archived.get(own.name, ()))\n",
        "                pass\n",
    ),
    Mistake("care", _BACKUP, "            finish_compactions(deployment, record.identity)\n", ""),
    Mistake("care", _BACKUP, "                publishing(sink).remove(sink, places, record.identity, last)\n", ""),
    Mistake("care", _MOVING, "Moved(folder, last + 1, committed_manifest", "Moved(folder, last, committed_manifest"),
    Mistake(
        "care",
        _COMPACTION,
        "        if self.draft.exists():\n            rename",
        "        if False:\n            rename",
    ),
    Mistake("care", _COMPACTION, "_plan_file(self._plan).write(", "(lambda _: None)("),
    # what a job has read is read again for queries that come later
    Mistake(
        "history",
        _HISTORY,
        "self._take(run, mark, read)\n        self._reach(",
        "self._take(run, None, read)\n        self._reach(",
    ),
    Mistake("history", _HISTORY, "title in history.titles or query.name in feeding)", "title in history.titles)"),
    Mistake("history", _HISTORY_RUN, "is_moved = saved.buckets != program.buckets", "is_moved = False", jobs="CHAINS"),
    Mistake("history", _HISTORY_RUN, "        account.subtract(self._held())\n", ""),
    Mistake("history", _CHANGE, "remove_unused(checkpoint, journal.histories,", "remove_unused(checkpoint, (),"),
    Mistake("history", _JOURNAL, "history=None) if epoch.number <= earliest else epoch", "history=None)"),
    Mistake("history", _JOINING, "held=tuple(held), joined=self._stage.number)", "held=tuple(held))"),
    Mistake(
        "history",
        _JOINING,
        "chosen = (item.chosen(~_are_in(item, known)) for item in records)",
        "chosen = iter(records)",
    ),
    # what a broker has deleted was not read
    Mistake("retention", _OFFSETS, "    if partition.first > start:\n", "    if False:\n", jobs="TOPICS"),
    Mistake(
        "retention",
        _OFFSETS,
        "moved[number] = item.first if item.first > start else item.until",
        "moved[number] = item.first + 1 if item.first > start else item.until",
        jobs="TOPICS",
    ),
    Mistake(
        "retention",
        "job_engine/sources/topics/reading.py",
        "                yield from self._lost(replace(wanted, start=reached, until=until, is_lost=True))\n",
        "",
        jobs="TOPICS",
    ),
    # commits of tables
    Mistake(
        "table",
        _VERSIONS,
        "after = replace(position, version=version)",
        "after = replace(position, version=version + 1)",
        jobs="DELTA",
    ),
    Mistake(
        "table",
        _VERSIONS,
        "units_read=(position.units_read or 0) + 1)",
        "units_read=(position.units_read or 0) + 2)",
        jobs="DELTA",
    ),
    Mistake("table", _VERSIONS, "        if not reading.changes:\n", "        if True:\n", jobs="DELTA"),
    Mistake("table", _VERSIONS, "        if not self._accepts_loss:\n", "        if False:\n", jobs="DELTA"),
    Mistake("table", _DATA, "                yield from self._lost(file, path)\n", "", jobs="DELTA"),
    Mistake("table", _COMMITS, "table is not None and _has(table, transaction)", "False", jobs="DELTA"),
    Mistake("table", _COMMITS, "version >= transaction.version", "version > transaction.version", jobs="DELTA"),
    Mistake("table", _COMMITS, "    remove_draft(path, transaction.application)\n", "", jobs="DELTA"),
    Mistake(
        "table",
        _DURABLE,
        "        sync(draft)\n        path.hardlink_to(draft)\n",
        "        path.hardlink_to(draft)\n",
        jobs="DELTA",
    ),
    Mistake(
        "table",
        _COMMITS,
        "            sync(file)\n        if settings",
        "            pass\n        if settings",
        jobs="DELTA",
    ),
    Mistake(
        "table",
        "job_engine/delta_log.py",
        "if isinstance(table, RemotePath) or not remove_part_of_checkpoint(table):",
        "if True:",
        jobs="DELTA",
    ),
    Mistake(
        "table",
        "job_engine/sinks/table/writing.py",
        "            complete([(file.local, file.place) for file in files if file.local is not None])\n",
        "",
        jobs="DELTA",
    ),
    Mistake(
        "table", _TABLES, "removeprefix(begin) not in committed]", "removeprefix(begin) in committed]", jobs="DELTA"
    ),
    # objects of a store
    Mistake(
        "store",
        "job_engine/stores.py",
        "            except (OSError, pa.ArrowException):\n                is_again = True\n                raise\n",
        "",
        jobs="STORES",
    ),
    Mistake(
        "store",
        _DURABLE,
        "        in_threads(lambda pair: pair[1].upload(pair[0]), remote, AT_ONCE)\n",
        "",
        jobs="STORES",
    ),
    Mistake("store", _LOCK, "            if holder != first:\n", "            if False:\n", jobs="STORES"),
)
"""Of some it is known that nothing comes of them: `make simulate-mutants` lists what no world has found."""


def tried(folder: Path, mistake: Mistake, seeds: int) -> str | None:
    """What the worlds of a copy say of a mistake; None = they have not found it."""
    file = folder / mistake.file
    text = file.read_text("utf-8")
    assert text.count(mistake.right) == 1, f"{mistake.file} has not once: {mistake.right}"
    file.write_text(text.replace(mistake.right, mistake.wrong), "utf-8")
    try:
        command = [sys.executable, "-W", "ignore", "-m", "tests.simulation", "--processes", "1", "--until-wrong"]
        done = subprocess.run(
            [*command, "--seeds", str(seeds), *(("--kind", mistake.jobs) if mistake.jobs else ())],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), "ENSUE_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        file.write_text(text, "utf-8")
    if not done.returncode:
        return None
    wrong = [line for line in done.stdout.splitlines() if line.startswith("WRONG: ")]
    first = next((line for line in done.stdout.splitlines() if line.startswith("seed ")), "at once:")
    return f"{first} {wrong[0].removeprefix('WRONG: ')[:100] if wrong else done.stderr[-200:]}"


def main() -> int:
    """Runs what the arguments say."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=400, help="worlds for each mistake, at most")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first mistake")
    parser.add_argument("--only", type=int, nargs="+", help="the numbers of some mistakes")
    given = parser.parse_args()
    numbers = range(given.first, len(MISTAKES)) if given.only is None else given.only
    started, found = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(given.processes) as pool:
        copies = [Path(temporary) / str(number) for number in range(given.processes)]
        for copy in copies:
            for name in COPIED:
                shutil.copytree(ROOT / name, copy / name)

        def one(mistake: Mistake) -> str | None:
            copy = copies.pop()
            try:
                return tried(copy, mistake, given.seeds)
            finally:
                copies.append(copy)

        chosen = [MISTAKES[number] for number in numbers]
        for number, mistake, said in zip(numbers, chosen, pool.map(one, chosen), strict=True):
            found += said is not None
            place = f"{number} {mistake.kind}: {mistake.file}: {' '.join(mistake.right.split())[:60]!r}"
            print(f"{'found' if said else 'NOT FOUND'} {place}: {said or ''}", flush=True)
    print(f"simulate-mutants: {found} of {len(chosen)} mistakes found, {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

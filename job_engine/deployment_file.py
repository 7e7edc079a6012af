"""Read a deployment: which queries run, on which sources, to which sinks.

Every mistake is reported, with its line and what was expected. Relative paths are relative to the
file. A program may give a mapping instead: its paths are relative to the working folder. Imports
only yaml and the standard library, so that `ensue check` needs no Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from job_engine import deployment_sections
from job_engine.deployment import (
    NAME,
    Deployment,
    document_of,
    kept_places,
    places_in_words,
    read_log,
    read_metrics,
    shared_streams,
    unplaced,
    with_places,
)
from job_engine.errors import in_plain_words
from job_engine.local_path import LocalPath
from job_engine.place import Place, asked_again
from job_engine.setting_keys import JOB_KEYS, Engine, FixedValue, fixed_value
from job_engine.setting_values import FolderKind, Folders, duration, idle, is_true, overlaps, seconds
from job_engine.sinks.kinds import Sink
from job_engine.sinks.names import channel_sink
from job_engine.sources.kinds import kind_of, source_keys
from job_engine.sources.listing.batch_log import buckets_of
from job_engine.sources.source import Source
from job_engine.wire.clock_sources import Clock
from job_engine.yaml_document import Mistakes, Node, read_document, read_given, value_of_written
from querylang.errors import FileErrors, InputError, did_you_mean, listed, near_file
from querylang.load import NAMELESS, QUERY_SUFFIXES, is_query_text
from querylang.parameters import NOTHING
from querylang.source import Source as QueryText
from querylang.system_limits import exists
from runtime.policies.settings_text import EXPECTED, forget_length
from runtime.threads import thread_count
from runtime.yaml_reader import file_text

DEFAULT_BUCKETS = 16
MAX_BUCKETS = 10_000

DEFAULT_TRIGGER = 1_000_000
"""1 s in µs: with timers, there is a micro-batch at nearly every trigger, records or not."""

ENGINE_VARIABLE = "ENSUE_ENGINE"
"""Of the environment: what runs jobs whose file and start do not say it."""

MOST_USUAL = 16
"""Buckets of a local job that says nothing: one for each core, at most so many."""

LONGEST_PATTERN = 1_000
"""Characters of one name in a pattern. Reading a pattern takes the square of its length."""


def load_deployment(
    given: Path | str | Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
    engine: Engine | None = None,
) -> Deployment:
    """Read and check a deployment file, or a mapping with the same keys; raises InputError.

    engine: in place of the one that it names
    """
    variables = os.environ if environment is None else environment
    if isinstance(given, Mapping):
        document = document_of(given)
        mistakes = Mistakes(NAME, variables)
        with places_in_words(document.places):
            root = Node(document.root, NAME, mistakes)
            deployment = _read(LocalPath(NAME), root, Folders(LocalPath.cwd()), engine, takes_text=True)
        return replace(deployment, places=document.places)
    file = LocalPath(given)
    if file.suffix in QUERY_SUFFIXES and exists(file):
        raise FileErrors(
            str(given), [(None, "is a query file; a deployment file, such as `job.yaml`, names it under `queries`")]
        )
    with in_plain_words({}):  # a disk that fails says nothing of what is written
        root = read_document(file_text(file), Mistakes(str(given), variables))
        return _read(file, root, Folders(file.resolve().parent), engine)


def _read(file: Path, root: Node, folders: Folders, engine: Engine | None, *, takes_text: bool = False) -> Deployment:
    """The deployment; raises FileErrors with all mistakes."""
    mistakes = root.mistakes
    deployment = _deployment(file, root, folders, engine, takes_text=takes_text)
    for line, message in overlaps(folders.named):
        mistakes.add(line, message)
    for line, message in _read_and_written(root, deployment):
        mistakes.add(line, message)
    mistakes.raise_if_any()
    placed = with_places(deployment, kept_places(deployment))
    if placed.engine is Engine.LOCAL:
        _refuse_names(root, unplaced(placed))
        mistakes.raise_if_any()
    value_of = partial(value_of_written, path=mistakes.path, environment=mistakes.environment)
    return replace(_with_retry(placed), environment=mistakes.used, value_of=value_of)


def _read_and_written(root: Node, deployment: Deployment) -> Iterator[tuple[int, str]]:
    """The lines of sinks and channels that write what a source reads, and what to say."""
    found = root.mapping(JOB_KEYS)
    nodes = found["sinks"].mapping() if "sinks" in found else {}
    channels = found["channels"].mapping() if "channels" in found else {}
    nodes = {**nodes, **{channel_sink(name): node for name, node in channels.items()}}
    for sink, message in shared_streams(deployment, asks=False):
        if sink in nodes:
            yield nodes[sink].line, message


def _with_retry(deployment: Deployment) -> Deployment:
    """The deployment, whose sources and sinks know how long brokers and stores are asked again."""
    retry, control, history = deployment.retry, deployment.control, deployment.history
    return replace(
        deployment,
        sources=tuple(_asked_again(source, retry) for source in deployment.sources),
        control=None if control is None else _asked_again(control, retry),
        sinks={name: sink.asked_again(retry) for name, sink in deployment.sinks.items()},
        checkpoint=asked_again(deployment.checkpoint, retry),
        history=None if history is None else replace(history, path=asked_again(history.path, retry)),
        tables={name: replace(item, path=asked_again(item.path, retry)) for name, item in deployment.tables.items()},
    )


def _asked_again(source: Source, retry: float | None) -> Source:
    place = None if source.place is None else asked_again(source.place, retry)
    return replace(source, place=place, own=kind_of(source.format).asked_again(source.own, retry))


def _is_live(found: Mapping[str, Node]) -> bool:
    is_live = is_true(found, "live")
    if is_live and "control" not in found:
        found["live"].wrong("'live' lets the control stream change queries; there is no 'control'")
    return is_live


def _refuse_names(root: Node, names: Collection[str]) -> None:
    """Report tables that only a catalog could find, which is Spark's."""
    found = root.mapping(JOB_KEYS)
    for group in ("sources", "sinks", "channels"):
        for item in found[group].mapping().values() if group in found else ():
            table = item.mapping().get("table")
            if table is not None and table.text() in names:
                table.wrong(
                    f"the table '{table.written()}' is found by the catalog of Spark, which `engine: local` does not"
                    " have; name the folder of the table as 'path'"
                )


def _deployment(file: Path, root: Node, folders: Folders, engine: Engine | None, *, takes_text: bool) -> Deployment:
    found = root.mapping(JOB_KEYS)
    for key in ("name", "queries", "sources", "sinks", "checkpoint"):
        if key not in found:
            root.wrong(f"'{key}' is missing")
    clock = found["clock"].one_of({str(clock): clock for clock in Clock}) if "clock" in found else None
    checkpoint = folders.place(found["checkpoint"]) if "checkpoint" in found else LocalPath()
    if "checkpoint" in found:
        folders.add(FolderKind.CHECKPOINT, "", checkpoint, found["checkpoint"])
    forget_keys = found["forget_keys"].parsed(forget_length, EXPECTED) if "forget_keys" in found else None
    forgets = "none" if forget_keys is None else f"{forget_keys} us"
    written = found["engine"].one_of({str(item): item for item in Engine}) if "engine" in found else None
    chosen = engine or written or _engine_of(root.mistakes.environment)
    buckets = _buckets(found, checkpoint, chosen)
    fixed = {"clock": str(clock or Clock.ARRIVAL), "buckets": str(buckets), "forget_keys": forgets}
    sources = _with_idle(found, clock or Clock.ARRIVAL, folders) if "sources" in found else ()
    sinks = (deployment_sections.read_sinks(found["sinks"], folders) if "sinks" in found else {}) | (
        deployment_sections.read_channels(found["channels"], folders) if "channels" in found else {}
    )
    return Deployment(
        file=file,
        name=_name(found),
        queries=_queries(found["queries"], folders.base, takes_text=takes_text) if "queries" in found else (),
        sources=sources,
        control=deployment_sections.read_control(found["control"], folders) if "control" in found else None,
        sinks=sinks,
        clock=clock or Clock.ARRIVAL,
        buckets=buckets,
        trigger=duration(found, "trigger", _usual_trigger(chosen, sinks.values())) or 0,
        checkpoint=checkpoint,
        engine=chosen,
        parameters=read_given(found["parameters"]) if "parameters" in found else NOTHING,
        forget_keys=forget_keys,
        hide=tuple(item.text() for item in found["hide"].items()) if "hide" in found else (),
        kernels=_archive(found["kernels"], folders) if "kernels" in found else None,
        spark=deployment_sections.read_spark(found["spark"], folders, written if engine is None else None)
        if "spark" in found
        else {},
        metrics=read_metrics(found),
        log=read_log(found),
        mode=found["mode"].parsed(_permissions, _MODES) if "mode" in found else None,
        retry=seconds(found, "retry"),
        live=_is_live(found),
        history=(
            deployment_sections.read_history(found["history"], folders, [item.name for item in sources])
            if "history" in found
            else None
        ),
        tables=deployment_sections.read_tables(found["tables"], folders) if "tables" in found else {},
        fixed={key: fixed_value(found[key], text) if key in found else FixedValue(text) for key, text in fixed.items()},
    )


def _engine_of(variables: Mapping[str, str]) -> Engine:
    """What runs a job whose file and start do not say; raises InputError."""
    words = {str(item): item for item in Engine}
    word = variables.get(ENGINE_VARIABLE) or Engine.SPARK
    if word not in words:
        near = did_you_mean(word, words)
        raise InputError(
            f"the environment variable {ENGINE_VARIABLE} must be {listed(words, 'or')}, not '{word}'{near}"
        )
    return words[word]


def _usual_trigger(engine: Engine, sinks: Iterable[Sink]) -> int:
    """None for a local job that writes messages alone: each micro-batch leaves files elsewhere."""
    leaves_files = any(sink.place is not None or sink.table for sink in sinks)
    return DEFAULT_TRIGGER if engine is Engine.SPARK or leaves_files else 0


_MODES = "permissions of folders such as `0700` or `0750`"


def _permissions(text: str) -> int | None:
    return int(text, 8) if re.fullmatch("0?7[057][057]", text) else None


def _name(found: Mapping[str, Node]) -> str:
    if "name" not in found:
        return ""
    pattern = re.compile(r"[\w.-]+")
    name = found["name"].parsed(lambda text: text if pattern.fullmatch(text) else None, "letters, digits, _ . or -")
    return name or ""


def _archive(node: Node, folders: Folders) -> Path:
    path = folders.path(node)
    if not path.is_file():
        node.wrong(f"no such archive of kernels: '{node.written()}'{near_file(path)}")
    elif not _is_zip(path):
        node.wrong(f"not an archive of `ensue compile --out`: '{node.written()}'")
    return path


def _is_zip(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return is_zipfile(file)
    except OSError:
        return False


def _queries(node: Node, folder: Path, *, takes_text: bool) -> tuple[Path | QueryText, ...]:
    found: list[Path | QueryText] = []
    for item in node.items():
        pattern = item.text()
        if takes_text and is_query_text(pattern):
            number = sum(isinstance(other, QueryText) for other in found)
            found.append(QueryText(f"{NAMELESS}{number + 1}" if number else NAMELESS, pattern))
        elif pattern:
            found.extend(path for path in _query_paths(item, pattern, folder) if path not in found)
    return tuple(found)


def _query_paths(item: Node, pattern: str, folder: Path) -> list[Path]:
    """The files and folders that a path or pattern names."""
    place = LocalPath(pattern)
    base, relative = (
        (LocalPath(place.anchor), place.relative_to(place.anchor)) if place.is_absolute() else (folder, place)
    )
    existing = [path for path in _matching(base, relative) if exists(path)]
    if not existing:
        item.wrong(f"no such query file: '{item.written()}'{near_file(base / relative)}")
    return existing


def _matching(base: Path, relative: Path) -> list[Path]:
    """The files of a pattern; a path that exists under exactly that name is never one."""
    path = base / relative
    if exists(path) or not any(character in str(relative) for character in "*?["):
        return [path]
    if any(len(part) > LONGEST_PATTERN for part in relative.parts):
        return []
    try:
        return sorted(base.glob(str(relative)))
    except (ValueError, NotImplementedError, OSError):  # such as `a**`, and names that are too long
        return []


def _buckets(found: Mapping[str, Node], checkpoint: Place, engine: Engine) -> int:
    """What the file says, else what the checkpoint has, else as is usual for an engine."""
    usual = min(MOST_USUAL, thread_count()) if engine is Engine.LOCAL else DEFAULT_BUCKETS
    if "buckets" in found:
        return found["buckets"].number(least=1, most=MAX_BUCKETS) or usual
    try:
        return buckets_of(checkpoint) or usual
    except ConnectionError:
        return usual  # the start says that the store is away


def _with_idle(found: Mapping[str, Node], clock: Clock, folders: Folders) -> tuple[Source, ...]:
    """The sources; the job's `idle` is that of all sources that have none of their own."""
    common = idle(found)
    sources = tuple(
        source if source.idle is not None else replace(source, idle=common)
        for source in deployment_sections.read_sources(found["sources"], folders)
    )
    if clock is Clock.PROCESSING:
        nodes = [found, *(node.mapping(source_keys()) for node in found["sources"].mapping().values())]
        for node in nodes:
            if "idle" in node:
                node["idle"].wrong("'idle' has no meaning with the clock 'processing', which always advances")
    return sources

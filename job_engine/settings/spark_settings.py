"""The part `spark:` of a deployment file: master, packages, memory and settings of Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from job_engine.document.setting_keys import SPARK_KEYS, Engine
from job_engine.document.setting_values import Folders
from job_engine.document.yaml_document import Node
from querylang.errors import did_you_mean, near_file

MASTER = "spark.master"

SPARKS_NAMES = {
    "master": MASTER,
    "packages": "spark.jars.packages",
    "jars": "spark.jars",
    "executor_memory": "spark.executor.memory",
    "driver_memory": "spark.driver.memory",
}
"""By key of `spark`: the name of the setting in Spark."""

KEPT_BY_JOBS = (
    "spark.sql.session.timeZone",
    "spark.sql.adaptive.enabled",
    "spark.sql.streaming.stateStore.providerClass",
    "spark.sql.streaming.noDataMicroBatches.enabled",
)
"""Settings that jobs depend on, and have in a session of their own."""

PARTITIONS = "spark.sql.shuffle.partitions"
"""Among how many tasks buckets are divided, where a checkpoint has not fixed it."""

_MASTERS = ("local[2]", "spark://HOST:7077", "yarn", "k8s://https://HOST:443")
_KINDS = ("local", "local-cluster", "spark", "yarn", "k8s")
_LOCAL = re.compile(r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?|local-cluster\[\d+,\d+,\d+\]")
_REMOTE = re.compile(r"yarn|spark://[\w.-]+:\d+(,[\w.-]+:\d+)*|k8s://\S+")
_COORDINATES = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")
_MEMORY = re.compile(r"[1-9]\d*[kmgt]b?", re.IGNORECASE)
_URI = re.compile(r"[A-Za-z][\w+.-]*:/")


def read_spark(node: Node, folders: Folders, engine: Engine | None = None) -> dict[str, str]:
    """Spark's settings by their names; mistakes are reported.

    engine: what the file names; only Spark has a cluster
    """
    found = node.mapping(SPARK_KEYS)
    chosen: dict[str, str] = {}
    if "master" in found:
        _note(chosen, "master", _master(found["master"]))
    if "packages" in found:
        _note(chosen, "packages", ",".join(filter(None, map(_package, found["packages"].items()))))
    if "jars" in found:
        _note(chosen, "jars", ",".join(filter(None, (_jar(item, folders) for item in found["jars"].items()))))
    for key in ("executor_memory", "driver_memory"):
        if key in found:
            is_size = "a size such as `512m` or `2g`"
            _note(chosen, key, found[key].parsed(lambda text: text if _MEMORY.fullmatch(text) else None, is_size))
    if "conf" in found:
        chosen |= _conf(found["conf"], found)
    if engine is Engine.LOCAL and not _LOCAL.fullmatch(chosen.get(MASTER, "local")):
        found.get("master", node).wrong(
            f"'{chosen[MASTER]}' is a cluster, and `engine: local` runs on this machine alone; leave the master out, or"
            " choose `engine: spark`"
        )
    return chosen


def unused_settings(file: object, spark: Mapping[str, str], engine: Engine) -> Iterator[str]:
    """A line for settings of Spark where it does not run: a file may be for both engines."""
    if spark and engine is not Engine.SPARK:
        yield f"{file}: what `spark` sets is for `engine: spark`; `engine: {engine}` does not use it"


def _note(chosen: dict[str, str], key: str, value: str | None) -> None:
    if value:
        chosen[SPARKS_NAMES[key]] = value


def _master(node: Node) -> str | None:
    text = node.text()
    if not text or _LOCAL.fullmatch(text) or _REMOTE.fullmatch(text):
        return text
    hint = did_you_mean(re.split(r"[:\[]", text)[0], _KINDS) if text.split(":")[0] not in _KINDS else ""
    node.wrong(f"'master' must be a master of Spark such as {', '.join(_MASTERS)}, not '{node.written()}'{hint}")
    return None


def _package(node: Node) -> str | None:
    what = "group:artifact:version, such as `org.apache.hadoop:hadoop-aws:3.4.1`"
    return node.parsed(lambda text: text if _COORDINATES.fullmatch(text) else None, what)


def _jar(node: Node, folders: Folders) -> str | None:
    text = node.text()
    if not text or _URI.match(text):
        return text
    path = folders.path(node)
    if not path.is_file():
        node.wrong(f"no such file: '{node.written()}'{near_file(path)}")
        return None
    return str(path.resolve())


def _conf(node: Node, beside: Mapping[str, Node]) -> dict[str, str]:
    words = {name: key for key, name in SPARKS_NAMES.items()}
    chosen: dict[str, str] = {}
    for name, value in node.mapping().items():
        text = value.text()
        if not name.startswith("spark."):
            value.wrong(f"settings of Spark begin with 'spark.'; did you mean 'spark.{_without_first(name)}'?")
        elif name in KEPT_BY_JOBS:
            value.wrong(f"'{name}' is set by every job; it cannot be chosen")
        elif words.get(name) in beside:
            value.wrong(f"'{name}' is the same as '{words[name]}' of 'spark'; give one of them")
        elif name == PARTITIONS and not re.fullmatch(r"[1-9]\d{0,5}", text):
            value.expected("a whole number, at least 1")
        elif text:
            chosen[name] = text
    return chosen


def _without_first(name: str) -> str:
    """The name without a first part that seems to stand for `spark`."""
    first, _, others = name.partition(".")
    return others if did_you_mean(first, ["spark"]) and others else name

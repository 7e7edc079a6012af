"""The packages that executors need beside Ensue, as they are installed for this Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from querylang.errors import InputError
from spark_backend.cluster.executor_check import NEEDED

CLIENTS = ("confluent-kafka", "fastavro")
"""Clients that workers read topics with, sent along where they are installed."""

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_LEFT_OUT = ("__pycache__", "tests", "include")
"""Folders of packages that no worker loads."""


def dependency_files(names: Iterable[str] = (*NEEDED, *CLIENTS)) -> Iterator[tuple[str, Path]]:
    """The files of these packages, and of those that they require: by their path on `sys.path`.

    Raises InputError for a package that executors need and that is not installed here.
    """
    found = _with_required(names)
    missing = sorted(set(NEEDED) & set(names) - set(found))
    if missing:
        raise InputError(f"{', '.join(missing)} cannot be added: not installed for this Python")
    for package in found.values():
        for file in package.files or ():
            path = Path(str(package.locate_file(file)))
            if ".." not in file.parts and not set(_LEFT_OUT) & set(file.parts) and path.is_file():
                yield file.as_posix(), path


def _with_required(names: Iterable[str]) -> dict[str, Distribution]:
    """By name, those that are installed; requirements of other systems and of extras are not."""
    found: dict[str, Distribution] = {}
    left = list(names)
    while left:
        name = left.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue
        for requirement in found[name].requires or ():
            wanted = _NAME.match(requirement)
            if wanted is not None and "extra ==" not in requirement:
                left.append(wanted[0])
    return dict(sorted(found.items()))

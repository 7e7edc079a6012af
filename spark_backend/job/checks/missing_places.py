"""Refuse what no store has: a bucket that does not exist, or that may not be looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from querylang.errors import InputError
from spark_backend.places.place import Place
from spark_backend.places.remote_path import RemotePath
from spark_backend.settings.deployment import Deployment


def refuse_missing_bucket(place: Place) -> None:
    """Raise InputError if the bucket does not exist, OSError if the store does not say."""
    if not isinstance(place, RemotePath) or place.root.endswith("://"):
        return
    with suppress(PermissionError):  # of the bucket; what is asked of its folders may still be allowed
        if not replace(place, path="").exists():
            raise InputError(f"{place}: there is no such bucket")


def empty_sources(deployment: Deployment) -> Iterator[str]:
    """A warning for each source in a store where nothing is: its path may be wrong."""
    for source in deployment.sources:
        if isinstance(source.path, RemotePath) and not source.path.exists():
            yield f"source {source.name}: nothing is in {source.path} yet"

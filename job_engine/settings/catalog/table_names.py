"""Delta tables that a deployment calls by their names in a catalog, and where they are.

Spark's catalog is asked when a job starts. Its answer is kept in the checkpoint, so that other
commands need no Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from job_engine.job_file import JobFile
from job_engine.places.place import Place, asked_again, place_of
from job_engine.settings.deployment import Deployment
from job_engine.sinks.kinds import Sink
from job_engine.sources.kinds import kind_of
from job_engine.sources.source import Source


def named_tables(deployment: Deployment) -> dict[str, str]:
    """Names of tables by what they are for."""
    return {what: item.table for what, item in _tables(deployment).items()}


def _tables(deployment: Deployment) -> dict[str, Source | Sink]:
    """What has the name of a table, by what it is for."""
    found: dict[str, Source | Sink] = {f"the source '{source.name}'": source for source in deployment.sources}
    found |= {f"the sink '{name}'": sink for name, sink in deployment.sinks.items()}
    return {what: item for what, item in found.items() if item.table}


def with_places(deployment: Deployment, places: Mapping[str, str]) -> Deployment:
    """The deployment with the places of tables that are known, by their names."""
    found = {name: asked_again(place_of(text), deployment.retry) for name, text in places.items()}
    return replace(
        deployment,
        sources=tuple(
            _placed(source, found[source.table]) if source.table in found else source for source in deployment.sources
        ),
        sinks={
            name: replace(sink, place=found[sink.table]) if sink.table in found else sink
            for name, sink in deployment.sinks.items()
        },
    )


def _placed(source: Source, place: Place) -> Source:
    return replace(source, place=place, own=kind_of(source.format).placed(source.own, place))


def unplaced(deployment: Deployment) -> list[str]:
    """The names of tables whose places are not known."""
    return [item.table for item in _tables(deployment).values() if item.place is None]


def kept_places(deployment: Deployment) -> dict[str, str]:
    """What the catalog answered when the job last ran."""
    if not named_tables(deployment):
        return {}
    try:
        return _file(deployment).readable() or {}
    except ConnectionError:
        return {}


def keep_places(deployment: Deployment) -> None:
    """Keep in the checkpoint where its tables are."""
    places = {item.table: item.place for item in _tables(deployment).values() if item.place is not None}
    if places:
        _file(deployment).write({name: str(place.resolve()) for name, place in places.items()})


def _file(deployment: Deployment) -> JobFile[dict[str, str]]:
    return JobFile(deployment.checkpoint / "ensue" / "tables.json", dict[str, str], text=_text)


def _text(places: Mapping[str, str]) -> str:
    return json.dumps(places, indent=1, sort_keys=True)

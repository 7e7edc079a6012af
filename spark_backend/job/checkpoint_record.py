"""Record what a checkpoint was made for, and refuse to continue it with something else.

The record is `<checkpoint>/ensue.json`. Spark itself tells sources apart by position only, and
notices neither another plan nor another number of buckets.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from querylang.errors import InputError
from querylang.plan.expression import Type
from spark_backend.job.atomic_files import write_atomically
from spark_backend.job.settings import Deployment, Source
from spark_backend.wire.program import Program

RECORD_VERSION = 1
_FILE = "ensue.json"

Schemas = Mapping[str, Mapping[str, Type]]
"""Fields of event types that were inferred from data, by event type and field."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a checkpoint was made for.

    identity: names the checkpoint; every new one has a new name
    sources: descriptions, in the order of the union
    plan: fingerprint of the program's plans
    queries: titles
    schemas: inferred event types, as text
    version: of this file's format
    """

    identity: str
    sources: tuple[str, ...]
    buckets: int
    clock: str
    plan: str
    queries: tuple[str, ...]
    schemas: dict[str, dict[str, str]]
    version: int = RECORD_VERSION

    @staticmethod
    def of(deployment: Deployment, program: Program, schemas: Schemas) -> Record:
        """The record of a new checkpoint."""
        return Record(
            identity=uuid.uuid4().hex[:12],
            sources=tuple(_described(source) for source in all_sources(deployment)),
            buckets=deployment.buckets,
            clock=str(deployment.clock),
            plan=program.fingerprint(),
            queries=tuple(query.title for query in program.plan().queries),
            schemas={name: {field: str(type_) for field, type_ in fields.items()} for name, fields in schemas.items()},
        )

    def types(self) -> Schemas:
        """The inferred event types."""
        return {
            name: {field: Type.parse(type_) for field, type_ in fields.items()} for name, fields in self.schemas.items()
        }


def all_sources(deployment: Deployment) -> list[Source]:
    """The sources in the order of the union: by name, the control stream last. It never changes."""
    control = [] if deployment.control is None else [deployment.control]
    return [*sorted(deployment.sources, key=lambda source: source.name), *control]


def read_record(checkpoint: Path) -> Record | None:
    """The record of a checkpoint; None = a new one.

    Raises InputError for a folder that is not a checkpoint of Ensue.
    """
    file = checkpoint / _FILE
    if not file.exists():
        if (checkpoint / "offsets").exists():
            raise InputError(f"{checkpoint}: is a Spark checkpoint that Ensue did not make; choose another folder")
        if checkpoint.is_dir() and any(not path.name.startswith(".") for path in checkpoint.iterdir()):
            raise InputError(f"{checkpoint}: holds files that are not a checkpoint; choose an empty or a new folder")
        return None
    try:
        data: dict[str, Any] = json.loads(file.read_text("utf-8"))
        if data["version"] != RECORD_VERSION:
            raise InputError(
                f"{checkpoint}: was written in version {data['version']} of the record; this release reads version"
                f" {RECORD_VERSION}"
            )
        return Record(**data | {"sources": tuple(data["sources"]), "queries": tuple(data["queries"])})
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file}: is damaged: {error}") from error


def write_record(checkpoint: Path, record: Record) -> None:
    """Write the record, before the first micro-batch."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    write_atomically(checkpoint / _FILE, json.dumps(asdict(record), indent=2) + "\n")


def refuse_difference(checkpoint: Path, kept: Record, wanted: Record) -> None:
    """Raise InputError if a run is not what the checkpoint was made for."""
    differences = [*_lists("sources", kept.sources, wanted.sources), *_values(kept, wanted)]
    if not differences and kept.plan != wanted.plan:
        changed = list(_lists("queries", kept.queries, wanted.queries))
        differences = changed or ["the queries, event types, orderings or values of parameters have changed"]
    if differences:
        raise InputError(
            f"{checkpoint}: this checkpoint was made for another deployment: {'; '.join(differences)}."
            " Restore the deployment, or choose another checkpoint; nothing was changed"
        )


def _values(kept: Record, wanted: Record) -> list[str]:
    return [
        f"'{name}' was {getattr(kept, name)} and is {getattr(wanted, name)}"
        for name in ("buckets", "clock")
        if getattr(kept, name) != getattr(wanted, name)
    ]


def _lists(word: str, kept: tuple[str, ...], wanted: tuple[str, ...]) -> list[str]:
    if kept == wanted:
        return []
    removed = [item for item in kept if item not in wanted]
    new = [item for item in wanted if item not in kept]
    parts = [f"without {', '.join(removed)}"] * bool(removed) + [f"with {', '.join(new)}"] * bool(new)
    return [f"{word} {' and '.join(parts) or 'in another order'}"]


def _described(source: Source) -> str:
    return f"{source.name} ({source.format} {source.path.resolve()})"

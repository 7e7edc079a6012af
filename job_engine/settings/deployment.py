"""What a deployment file says, once it is read: plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from job_engine.document.fixed_settings import FixedValues
from job_engine.document.setting_keys import Engine
from job_engine.places.place import Place
from job_engine.settings.watching_settings import Address
from job_engine.sinks.kinds import Sink
from job_engine.sources.source import Source
from job_engine.wire.clock import Clock
from querylang.errors import InputError
from querylang.logger import LogForm
from querylang.parameters.given_values import NOTHING, Given
from querylang.source import Source as QueryText
from runtime.policies.settings_text import USUAL_TIMES, TimeForm


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """A table of records from before those that the job itself reads.

    format: `parquet` or `delta`
    path: a folder
    source: the source whose records these are; None = event types say it
    event, type_field, source_time, arrival, times: as in `Source`
    outside_files: as in `DeltaSource`
    """

    format: str
    path: Place
    source: str | None = None
    event: str | None = None
    type_field: str | None = None
    source_time: str | None = None
    arrival: str | None = None
    times: TimeForm = USUAL_TIMES
    outside_files: bool = False


def _nobody_knows(written: str) -> Any:
    raise InputError(f"nobody knows what '{written}' stands for")


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment file without mistakes.

    file: its path; of a mapping that a program gave, a name for messages
    queries: query files and folders; of a mapping texts, too
    control: the control stream; None = there is none
    live: whether the control stream may change the queries
    history: the table that queries can begin with; None = there is none
    sinks: by name, of those in SINKS; those of channels by `channel_sink`
    buckets: number of parts that the keys are spread over
    trigger: µs between the starts of micro-batches
    checkpoint: the folder, or the place in a store, that the job continues from
    engine: which driver runs it
    forget_keys: µs without records after which a key is forgotten; None = never
    kernels: an archive of compiled kernels for the executors; None = they compile their own
    spark: settings of Spark by their names there
    metrics: where its metrics can be fetched; None = it has none
    log: how a run writes its log
    parameters: values by query and instance, not yet compared with the queries
    mode: permissions of the checkpoint; None = 0700 for a new one
    retry: seconds that a broker or a store which does not answer is asked again; None = as is usual
    fixed: the settings beside its sources that may not change on a checkpoint
    environment: the variables that values were read from, and their values
    places: of a mapping, the keys that lead to what would be a line
    value_of: gives the value of a text with variables; raises InputError if one is not set
    """

    file: Path
    name: str
    queries: tuple[Path | QueryText, ...]
    sources: tuple[Source, ...]
    control: Source | None
    sinks: Mapping[str, Sink]
    clock: Clock
    buckets: int
    trigger: int
    checkpoint: Place
    engine: Engine = Engine.SPARK
    parameters: Given = NOTHING
    forget_keys: int | None = None
    kernels: Path | None = None
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    metrics: Address | None = None
    log: LogForm = LogForm.TEXT
    mode: int | None = None
    retry: float | None = None
    live: bool = False
    history: HistoryTable | None = None
    fixed: FixedValues = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    places: Mapping[int, str] = field(default_factory=dict, repr=False)
    value_of: Callable[[str], Any] = field(default=_nobody_knows, repr=False, compare=False)

    @property
    def all_sources(self) -> list[Source]:
        """The sources in the order of the union, for good: by name, the control stream last."""
        control = [] if self.control is None else [self.control]
        return [*sorted(self.sources, key=lambda source: source.name), *control]

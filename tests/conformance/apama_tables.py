"""The published tables of Apama as records for the oracle of time; they run everywhere else as `apama.case.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.conformance.published import moment
from tests.support.timed import SECOND, Record, Timed, TimedInput


@dataclass(frozen=True)
class Told:
    """What a row expects: None where the table says nothing. `out`: pairs of ids."""

    definitive: int | None
    discard: str | None
    out: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Trusted:
    """A case: `ids` and `told` one per record, including those before it that set the leeway; `within` for pairs of events."""

    name: str
    query: Timed
    ids: tuple[int | None, ...]
    told: tuple[Told, ...]
    within: int


def trusted_cases() -> list[Trusted]:
    """All cases of the file."""
    document = yaml.load((Path(__file__).parent / "apama.case.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader)
    return [_case(case) for case in document]


def _case(case: Mapping[str, Any]) -> Trusted:
    beats = {row["heartbeat"] for row in case["rows"] if "heartbeat" in row}
    inputs = tuple(
        TimedInput(
            event,
            wait=given["wait"] * SECOND,
            out_of_order=given.get("out_of_order", False),
            heartbeat=f"H{event}" if event in beats else None,
        )
        for event, given in case["inputs"].items()
    )
    records = [_record(row) for row in case["rows"]]
    told = [_told(row) for row in case["rows"]]
    ids = [row.get("id") for row in case["rows"]]
    if "leeway" in case:
        records.insert(0, Record(records[0].at, leeway=(case["leeway"][0], case["leeway"][1])))
        told.insert(0, Told(None, None, ()))
        ids.insert(0, None)
    return Trusted(case["name"], Timed(inputs, tuple(records)), tuple(ids), tuple(told), case["within"] * SECOND)


def _record(row: Mapping[str, Any]) -> Record:
    event = f"H{row['heartbeat']}" if "heartbeat" in row else row.get("in")
    return Record(moment(row["at"]), event, moment(row["ts"]) if "ts" in row else None)


def _told(row: Mapping[str, Any]) -> Told:
    definitive = moment(row["dt"]) if "dt" in row else None
    return Told(definitive, row.get("discard"), tuple((first, second) for first, second in row.get("out", ())))

"""The settings of what can be watched of a job: its metrics and its log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from job_engine.document.yaml_document import Node
from querylang.logger import LogForm

LOOPBACK = "127.0.0.1"

_ADDRESS = re.compile(r"(?:(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[\w.-]+)):)?(?P<port>\d{1,5})")


@dataclass(frozen=True, slots=True)
class Address:
    """Where metrics can be fetched."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_metrics(found: Mapping[str, Node]) -> Address | None:
    """The address for metrics; None = there are none, or a mistake was reported."""
    if "metrics" not in found:
        return None
    return found["metrics"].parsed(_address, "a port such as `9108`, or `HOST:PORT` such as `0.0.0.0:9108`")


def _address(text: str) -> Address | None:
    match = _ADDRESS.fullmatch(text)
    if match is None or not 1 <= int(match["port"]) <= 65_535:
        return None
    return Address(match["six"] or match["host"] or LOOPBACK, int(match["port"]))


def read_log(found: Mapping[str, Node]) -> LogForm:
    """The form of the log."""
    if "log" not in found:
        return LogForm.TEXT
    return found["log"].one_of({str(form): form for form in LogForm}) or LogForm.TEXT

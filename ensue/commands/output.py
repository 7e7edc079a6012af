"""What commands print: results to standard output, messages about them to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ensue.result import Replay
    from querylang.plan.model import QueryPlan


def print_text(text: str) -> None:
    """A result as text."""
    sys.stdout.write(text + "\n")


def print_json(value: Mapping[str, Any]) -> None:
    """A result as one line of JSON."""
    print_text(json.dumps(value, ensure_ascii=False))


def print_error(text: str) -> None:
    """An error, a warning or a remark to standard error; in colour on a terminal."""
    from ensue.commands.colour import coloured, wants_colour

    sys.stderr.write((coloured(text) if wants_colour(sys.stderr, os.environ) else text) + "\n")


def print_warnings(result: Replay) -> None:
    """What is suspicious in the event tables of a replay."""
    for warning in result.warnings:
        print_error(f"warning: {warning}")


def print_idle_queries(queries: Iterable[QueryPlan]) -> None:
    """Which queries have no instance, and which parameters lack a value."""
    from querylang.parameters.instances import missing

    for query in queries:
        print_error(missing(query))

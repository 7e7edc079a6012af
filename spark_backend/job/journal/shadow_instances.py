"""The command that gives a shadow the instances of its query, without their values in its text."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TypedDict

from runtime.json_reader import json_of_text

_NAME = "CopyInstances"
"""Not a control event: users cannot send it."""


@dataclass(frozen=True, slots=True)
class InstancesCommand:
    """The names of a query and of its shadow, which was deployed before."""

    query: str
    shadow: str

    def to_text(self) -> str:
        """As the text of a command."""
        return json.dumps({_NAME: asdict(self)})

    @staticmethod
    def of_text(text: str) -> InstancesCommand | None:
        """The inverse of `to_text`; None = it is another command. Raises DamagedJson."""
        return json_of_text(text, _Text)["CopyInstances"] if text.startswith(f'{{"{_NAME}"') else None


class _Text(TypedDict):
    CopyInstances: InstancesCommand

"""The definitions of event types that data shows, as query texts write them."""

from __future__ import annotations

from collections.abc import Mapping

from querylang.plan.expression import Type
from querylang.plan.text import written_name
from querylang.syntax.tokens import KEYWORDS


def definitions(schemas: Mapping[str, Mapping[str, Type]]) -> str:
    """All in one line: `event A { string k; float v; }`."""
    return " ".join(
        f"event {name} {{ {' '.join(f'{type_} {_field(field)};' for field, type_ in fields.items())} }}"
        for name, fields in schemas.items()
    )


def _field(name: str) -> str:
    return f"#{name}" if name in KEYWORDS else written_name(name)

"""A pattern of more inputs than the kernel links."""

from __future__ import annotations

import ensue
from runtime.matching.kernel.tables import MOST_LINKS

TYPES = "ABCDEFGHIJK"


def test_events_of_other_inputs_are_not_bound() -> None:
    assert len(TYPES) > MOST_LINKS + 1
    text = "".join(f"event {name} {{ integer v; }}\n" for name in TYPES)
    inputs = " ".join(f"{name}() within 100.0;" for name in TYPES)
    text += (
        f"query Q {{ inputs {{ {inputs} }} find {' -> '.join(f'{name} as {name.lower()}' for name in TYPES)} {{}} }}"
    )
    records = [{"at": float(at), "event": name, "v": at} for at, name in enumerate("ABCDEFGHHAIAJAK", 1)]
    (match,) = ensue.replay(text, records).matches.to_dict("records")
    assert [match[f"{name.lower()}.v"] for name in TYPES] == [1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15]

"""What the answers of open queries say, to be compared with a replay."""

from __future__ import annotations

from typing import Any

import ensue


def facts(answers: list[ensue.Answer]) -> dict[str, Any]:
    """What the answers say, without the text and the arrival of malformed rows.

    The text depends on the columns beside them. A row without a time arrives at the clock.
    """
    discards = [row for answer in answers for row in answer.discarded.astype(object).to_dict("records")]
    own = ("query", "reason", "event", "offset", "source_time", "bound", "id", "k")
    return {
        "matches": [match for answer in answers for match in answer.match_objects()],
        "outputs": [output for answer in answers for output in answer.output_objects()],
        "discards": [tuple(str(row[name]) for name in own) for row in discards],
        "ledger": answers[-1].ledger.to_dict("records"),
    }

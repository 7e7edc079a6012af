"""Columns of times in the form that users name: another unit of numbers, another form of text."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from runtime.columns.timestamps import Timestamps, is_text, parse_times, within_years
from runtime.instants import NO_TIME, SECOND
from runtime.policies.time_forms import UNITS, TimeForm

_HAS_YEAR = re.compile(r"%[YyGcx]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def given_times(column: pa.Array, form: TimeForm) -> Timestamps:
    """As `parse_times`, in a form that users name."""
    if form.pattern is not None and is_text(column.type):
        return within_years(column, _of_pattern(column, form.pattern))
    return parse_times(column, UNITS[form.unit])


def _of_pattern(column: pa.Array, pattern: str) -> Timestamps:
    """Text in this form. Each distinct text is read once; without a year it is of 1970."""
    encoded = pc.utf8_trim_whitespace(pc.cast(column, pa.string())).dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    if not _HAS_YEAR.search(pattern):
        pattern, texts = f"{pattern} %Y", [f"{text} 1970" for text in texts]
    known = np.append(_micros(texts, pattern), NO_TIME)
    codes = pc.fill_null(encoded.indices, len(texts)).to_numpy(zero_copy_only=False)
    micros = known[codes]
    return Timestamps(micros, (micros == NO_TIME) & (codes < len(texts)))


def _micros(texts: list[str], pattern: str) -> NDArray[np.int64]:
    """By text: microseconds UTC; NO_TIME = not in this form."""
    import pandas as pd  # slow to load, and rarely needed

    # pandas takes some words, such as `now`, for times whatever the form is.
    candidates = [text if any(map(str.isdigit, text)) else None for text in texts]
    found = pd.to_datetime(pd.Series(candidates, dtype=object), format=pattern, errors="coerce", utc=True)
    micros = np.where(found.isna(), NO_TIME, found.to_numpy("datetime64[us]").astype(np.int64))
    for place in np.flatnonzero(found.isna()).tolist():
        if candidates[place] is not None:
            micros[place] = _far_time(texts[place], pattern)
    return micros


def _far_time(text: str, pattern: str) -> int:
    """A time that pandas may not hold, such as one in the year 9000; NO_TIME = none."""
    try:
        found = datetime.strptime(text, pattern)  # noqa: DTZ007  a form may have no zone
        moment = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        gap = moment - _EPOCH
    except (ValueError, OverflowError):
        return NO_TIME
    return (gap.days * 86_400 + gap.seconds) * SECOND + gap.microseconds

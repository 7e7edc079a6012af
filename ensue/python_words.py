"""Messages for callers in Python: `time_unit="ms"` where the command line has `--time-unit ms`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from querylang.errors import InputError
from querylang.logger import words

_ARGUMENTS = (
    "arrival type source_time parameters ordering forget_keys max_record csv time_unit time_format"
    " source_column partition_column offset_column"
)

ARGUMENTS = frozenset(_ARGUMENTS.split(" "))
"""What has the same name on the command line, with dashes; all are texts."""

_OPTION = re.compile(r'`--([a-z-]+) ("[^`]*"|[^`]+)`')


@contextmanager
def in_python_words() -> Iterator[None]:
    """What a call raises and warns of names its arguments, not options of the command line."""
    before = words.set(python_words)
    try:
        yield
    except InputError as error:
        error.args = tuple(python_words(part) if isinstance(part, str) else part for part in error.args)
        raise
    finally:
        words.reset(before)


def python_words(text: str) -> str:
    """The message with arguments for the options in it."""
    return _OPTION.sub(_argument, text)


def _argument(found: re.Match[str]) -> str:
    name, value = found[1].replace("-", "_"), found[2]
    if name not in ARGUMENTS:
        return found[0]
    return f"`{name}={value}`" if value.startswith('"') else f'`{name}="{value}"`'

"""What a job takes by chance: names that nothing else has, and lengths of pauses."""

from __future__ import annotations

import os
import random
import uuid


def new_name(length: int = 32) -> str:
    """A name that nothing else has: so many hexadecimal digits, 32 at most."""
    return uuid.uuid4().hex[:length]


def new_guid() -> str:
    """A name that nothing else has, in the form of UUIDs."""
    return str(uuid.uuid4())


def new_salt() -> str:
    """32 hexadecimal digits that nobody can guess."""
    return os.urandom(16).hex()


def any_length(most: float) -> float:
    """A length from 0 to `most`, all equally likely."""
    return random.uniform(0, most)  # noqa: S311 # nobody gains by guessing it

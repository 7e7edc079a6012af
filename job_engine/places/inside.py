"""Names from data as places: below the root that they belong to, or not at all.

Every name that is read from a file, a log, a message or a column, and that becomes a path which is
read, written or removed, comes through here.
"""

from __future__ import annotations

import re

from job_engine.places.place import Place, is_within
from querylang.errors import InputError

_NO_TEXT = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Halves of surrogate pairs, apart from those that stand for a byte of a name that is not UTF-8."""


class OutsidePath(InputError):
    """A name leads out of the folder that it belongs to."""


def below(root: Place, name: str) -> Place:
    """The place of a name below a root, where links may lead elsewhere: sources may have them.

    Raises OutsidePath for a name that is empty or absolute, has `..` or NUL, or is not text.
    """
    is_wrong = name.startswith("/") or "\0" in name or ".." in name.split("/")
    if not name or is_wrong or _NO_TEXT.search(name) is not None:
        raise OutsidePath(f"{root}: {name!r} is not the name of a file in it")
    return root / name


def inside(root: Place, name: str) -> Place:
    """The place of a name below a root; links on the way are resolved.

    Raises OutsidePath as `below`, and for a link that leads out.
    """
    place = below(root, name)
    if not is_within(place, root):
        raise OutsidePath(f"{place}: leads out of {root}")
    return place

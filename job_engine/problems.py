"""What ends a run because of a source: it is away, or what it had was removed."""

from __future__ import annotations


class SourceProblem(Exception):
    """A source cannot be read, or not any further; the text says why, and the way out.

    is_passing: whether it may be over soon
    """

    is_passing = False

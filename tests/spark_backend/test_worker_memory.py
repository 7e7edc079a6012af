"""Collections of garbage in workers: cheap, and of everything that came later."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from runtime import threads


class Node:
    """Refers to itself, so that only a collection removes it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def _undone() -> Iterator[None]:
    gc.unfreeze()  # other tests run what workers run
    yield
    gc.unfreeze()
    gc.callbacks.remove(threads._after_collection)


@pytest.mark.usefixtures("_undone")
def test_what_a_long_collection_leaves_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    threads.set_objects_aside()
    threads.set_objects_aside()
    assert gc.callbacks.count(threads._after_collection) == 1
    monkeypatch.setattr(threads, "LONGEST", 1e9)
    gc.collect()
    assert gc.get_freeze_count() == 0
    monkeypatch.setattr(threads, "LONGEST", 0.0)
    gc.collect()
    assert gc.get_freeze_count() > 10_000
    later = weakref.ref(Node())
    gc.collect()
    assert later() is None

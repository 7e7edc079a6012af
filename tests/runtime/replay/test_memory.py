"""Which allocator Arrow has during a replay, and afterwards."""

from __future__ import annotations

import pyarrow as pa
import pytest

from runtime.replay.replay import VARIABLE, memory_kept


@pytest.fixture(autouse=True)
def _as_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def _backend() -> str:
    return str(pa.default_memory_pool().backend_name)


@pytest.mark.skipif(_backend() != "mimalloc", reason="another allocator was chosen")
def test_arrow_allocates_with_the_c_library_until_the_last_replay_has_ended() -> None:
    first, second = memory_kept(), memory_kept()
    with first:
        assert _backend() == "system"
        second.__enter__()
    assert _backend() == "system"
    second.__exit__(None, None, None)
    assert _backend() == "mimalloc"


@pytest.mark.skipif(_backend() != "mimalloc", reason="another allocator was chosen")
def test_arrow_has_its_allocator_again_after_a_replay_that_fails() -> None:
    with pytest.raises(ValueError, match="wrong"), memory_kept():
        raise ValueError("wrong")
    assert _backend() == "mimalloc"


def test_an_allocator_that_users_have_chosen_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _backend()
    monkeypatch.setenv(VARIABLE, before)
    with memory_kept():
        assert _backend() == before

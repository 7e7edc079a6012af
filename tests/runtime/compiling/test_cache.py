"""Compiled kernels on disk: several processes store at once, and a disk may be full."""

from __future__ import annotations

import errno
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from runtime.compiling import machine_code
from runtime.compiling.files import KEPT, pack, shipped_folder
from runtime.compiling.machine_code import KernelCache, _CheckedFiles

SIGNATURES = 8


def test_signatures_stored_at_once_are_all_kept(tmp_path: Path) -> None:
    begin = Barrier(SIGNATURES)

    def store(number: int) -> None:
        files = _CheckedFiles(str(tmp_path), "kernel", "stamp")
        begin.wait()
        files.save(f"signature {number}", f"code {number}")

    with ThreadPoolExecutor(SIGNATURES) as pool:
        list(pool.map(store, range(SIGNATURES)))
    files = _CheckedFiles(str(tmp_path), "kernel", "stamp")
    found = [files.load(f"signature {number}") for number in range(SIGNATURES)]
    assert found == [f"code {number}" for number in range(SIGNATURES)]


def test_a_kernel_that_cannot_be_stored_runs_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(_CheckedFiles, "save", full)
    monkeypatch.setattr(KernelCache, "_save_overload", _saving)
    monkeypatch.setattr(machine_code, "_warned", set())
    for _ in range(2):
        KernelCache(full).save_overload("signature", "code")
    assert caplog.text.count("cannot be stored: the disk is full") == 1


def _saving(self: Any, signature: Any, data: Any) -> None:
    """What numba does with what is to be stored, without making bytes of it."""
    self._cache_file.save(signature, data)


def test_archives_that_nobody_uses_any_more_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, of_user, folders = tmp_path / "kernels", tmp_path / "cache", []
    kernels.mkdir()
    for number, age in enumerate((KEPT + 60, KEPT - 60, 0)):
        (kernels / "k.nbi").write_bytes(bytes([number]))
        archive = tmp_path / f"{number}.zip"
        pack(kernels, archive)
        monkeypatch.setenv("ENSUE_KERNELS", str(archive))
        folder = shipped_folder(of_user)
        assert folder is not None
        folders.append(folder)
        os.utime(folder, (time.time() - age,) * 2)
    assert [folder.exists() for folder in folders] == [False, True, True]

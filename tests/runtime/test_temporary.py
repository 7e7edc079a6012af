"""What is temporary: gone with its process, removed by the next one after a SIGKILL, and by nobody before."""

from __future__ import annotations

import errno
import fcntl
import gzip
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runtime import temporary
from runtime.temporary import HeldFolder, folder_of_process, own_folder, remove_unheld, temporary_folder
from tests.support.killed_runs import ROOT
from tests.support.waiting import wait_for


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of the system, for a process that has needed none yet."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(temporary, "_of_process", [])
    return folder


def started(code: str) -> subprocess.Popen[str]:
    """A process that has run a program, and waits."""
    lines = f"import sys\nfrom runtime.temporary import *\n{code}\nprint('ready', flush=True)\nsys.stdin.read()"
    found = subprocess.Popen(
        [sys.executable, "-c", lines], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert found.stdout is not None
    assert found.stdout.readline() == "ready\n"
    return found


def ended(process: subprocess.Popen[str], number: int) -> None:
    process.send_signal(number)
    process.communicate()


def test_the_next_process_removes_the_folder_of_one_that_was_killed(place: Path) -> None:
    killed, living = started("own_folder()"), started("own_folder()")
    assert len(list(place.iterdir())) == 2
    ended(killed, signal.SIGKILL)
    own = own_folder().parent
    assert len(list(place.iterdir())) == 2
    living.communicate("")  # ends as processes do
    assert list(place.iterdir()) == [own]


def test_a_child_holds_the_folder_of_its_parent(place: Path) -> None:
    code = "import os\nown_folder()\nif os.fork():\n    os._exit(0)"
    child = started(code)  # of a parent that ends without a word
    remove_unheld()
    assert len(list(place.glob("*/*"))) == 1
    ended_by_end_of_input = child.communicate("")
    assert ended_by_end_of_input == ("", None)
    wait_for(lambda: remove_unheld() or not list(place.iterdir()))


def test_a_forked_process_has_a_folder_of_its_own(place: Path) -> None:
    code = "import os\nold = folder_of_process()\nif os.fork():\n    os.wait(); os._exit(0)\nassert old != folder_of_process()"
    child = started(code)
    assert len(list(place.iterdir())) == 2
    child.communicate("")
    wait_for(lambda: remove_unheld() or not list(place.iterdir()))


def test_nothing_of_others_is_removed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "ensue-job-file").touch()
    (place / "other").mkdir()
    (place / "ensue-job-link").symlink_to(place / "other")
    (place / "ensue-other-1").mkdir()
    remove_unheld()
    assert len(list(place.iterdir())) == 4
    (place / "ensue-job-user").mkdir()
    user = os.geteuid()
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: user + 1)  # root may open everyone's
        remove_unheld()
    assert (place / "ensue-job-user").is_dir()
    remove_unheld()
    assert not (place / "ensue-job-user").exists()


def test_where_there_are_no_locks_nothing_is_removed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))  # as a folder of another machine does

    monkeypatch.setattr(fcntl, "flock", refuse)
    held = HeldFolder()
    remove_unheld()
    assert held.folder.is_dir()
    held.close()
    assert not list(place.iterdir())


def test_a_folder_that_others_have_tidied_up_is_made_again() -> None:
    folder_of_process().rmdir()
    with temporary_folder() as folder:
        assert folder.is_dir()
    assert not folder.exists()


def test_what_a_killed_process_has_unfolded_goes_with_the_next_one(place: Path, tmp_path: Path) -> None:
    table = tmp_path / "a.csv.gz"
    table.write_bytes(gzip.compress(b"time,v\n1,2\n"))
    killed = started(
        "from pathlib import Path; from runtime.file_forms import Asked;"
        f"from runtime.reading.formats.encodings import plain_file; opened = plain_file(Path({str(table)!r}), Asked());"
        "opened.__enter__()"
    )
    assert len(list(place.glob("*/*/table.csv"))) == 1
    ended(killed, signal.SIGKILL)
    remove_unheld()
    assert not list(place.iterdir())


ELSEWHERE = {
    "ensue/background.py",  # names a lock, which stays
    "ensue/commands/findings.py",  # a draft beside its file
    "ensue/replay_to_file.py",  # runs beside their file, which its next run removes
    "runtime/compiling/files.py",  # kernels beside others, which are removed when they are old
    "runtime/temporary.py",
}


def test_nobody_else_makes_what_is_temporary() -> None:
    packages = ("querylang", "runtime", "job_engine", "spark_backend", "ensue")
    texts = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in texts if "tempfile" in path.read_text(encoding="utf-8")}
    assert found == ELSEWHERE

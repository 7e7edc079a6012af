"""What the system refuses, and values of wrong types from Python: named as what they are, with the way out."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ensue.calls import deploy, replay
from ensue.calls import open as open_
from ensue.queries import load
from job_engine.errors import failed, plain_error, writing_to
from job_engine.local_path import LocalPath
from querylang.errors import InputError, PassingError
from querylang.system_errors import reason_of, refused
from querylang.system_limits import exists, is_folder
from runtime.temporary import folder_of_process
from spark_backend.plain_errors import refuse_unusable_java
from tests.ensue.command import Run
from tests.support.killed_runs import ROOT

QUERY = "query Q { inputs { A() within 10.0; } find A as a; }\n"
ROWS = [{"at": 0.0, "v": 1.0}]


def error(number: int, place: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), place)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EMFILE, "too many files are open: this process may have "),
        (errno.ENFILE, "too many files are open on this machine"),
        (errno.EROFS, "the file system is read-only. Mount it such that it can be written, or choose another place"),
        (errno.ENOSPC, "the disk is full. Make room, or choose another place"),
        (errno.EACCES, "no permission for the user "),
    ],
)
def test_a_refusal_has_its_way_out_wherever_it_is_met(number: int, told: str) -> None:
    assert reason_of(error(number)).startswith(told)
    assert str(refused(error(number), "a.csv: cannot be written")).startswith(f"a.csv: cannot be written: {told}")
    assert reason_of(RuntimeError(f"Failed to open 'x'. Detail: [errno {number}] {os.strerror(number)}")) != ""
    if number not in (errno.ENOSPC, errno.EACCES):
        assert told in str(plain_error(RuntimeError(f"java.io.IOException: {os.strerror(number)}")))
        with pytest.raises(InputError, match=told[:20]), writing_to("out"):
            raise error(number, "out")


def test_others_keep_their_own_words() -> None:
    assert reason_of(error(errno.ENOENT)) == "No such file or directory"
    assert reason_of(PermissionError(errno.EACCES, "the store refuses access")) == "the store refuses access"
    assert reason_of(ValueError("a zero\nbyte")) == "a zero\\nbyte"
    assert isinstance(refused(error(errno.ENOSPC), "a"), PassingError)
    assert not isinstance(failed(error(errno.EROFS), "a"), PassingError)


def limited(files: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


def replay_of_forty_files(folder: Path, most: int) -> subprocess.CompletedProcess[str]:
    """In a process that may have `most` files open."""
    (folder / "q.query").write_text(QUERY)
    (folder / "events").mkdir()
    for number in range(40):
        (folder / "events" / f"{number}.csv").write_text(f"at,event,v\n{number},A,1.0\n")
    return subprocess.run(
        [sys.executable, "-m", "ensue", "replay", "q.query", "events", "--out", "out.csv"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: limited(most),
    )


def test_more_files_than_may_be_open_are_replayed(tmp_path: Path) -> None:
    done = replay_of_forty_files(tmp_path, 30)
    assert (done.returncode, done.stderr) == (0, "")
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 41


def test_too_few_open_files_are_named_by_a_replay(tmp_path: Path) -> None:
    done = replay_of_forty_files(tmp_path, 8)
    assert done.returncode == 4
    assert "too many files are open: this process may have 8. Allow more, such as `ulimit -n 65536`" in done.stderr
    assert done.stderr.count("\n") == 1


def test_spark_is_not_started_with_too_few_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (40, 40))
    with pytest.raises(InputError, match=r"Spark has some hundreds of files open, and the system allows 40: allow"):
        refuse_unusable_java("2g")


def test_a_full_disk_behind_standard_output_is_named(tmp_path: Path) -> None:
    (tmp_path / "q.query").write_text(QUERY)
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "ensue", "check", str(tmp_path / "q.query")]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert done.returncode == 4
    assert done.stderr == "standard output cannot be written: the disk is full. Make room, or choose another place\n"


def test_what_a_command_meets_in_between_is_no_failure_of_ours(
    ensue: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error(errno.EMFILE, "/proc/x")

    (tmp_path / "q.query").write_text(QUERY)
    monkeypatch.setattr("ensue.commands.texts.print_text", refuse)
    done = ensue("check", str(tmp_path / "q.query"))
    assert done.returncode == 4
    assert done.stderr.startswith("/proc/x: too many files are open")


def test_a_place_that_cannot_be_written_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = LocalPath.of(tmp_path)
    assert place.refusal() is None
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = place.refusal()
    assert found is not None
    assert found.errno == errno.EACCES
    monkeypatch.setattr(os, "statvfs", lambda _: type("Found", (), {"f_flag": os.ST_RDONLY}))
    found = place.refusal()
    assert found is not None
    assert found.errno == errno.EROFS


def test_a_path_that_may_not_be_looked_at_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error(errno.EACCES)

    monkeypatch.setattr(Path, "stat", refuse)
    assert exists("/closed/a.query")
    assert not is_folder("/closed/a.query")


def test_no_folder_for_temporary_files_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp', '/var/tmp']")

    monkeypatch.setattr("runtime.temporary._of_process", [])
    monkeypatch.setattr("tempfile.gettempdir", refuse)
    told = r"no folder for temporary files can be written: /tmp /var/tmp are full .* Let `TMPDIR` name one"
    with pytest.raises(InputError, match=told):
        folder_of_process()


@pytest.mark.parametrize("given", [None, 3, b"x", [None], object()])
def test_a_query_of_a_wrong_type_is_named(given: Any) -> None:
    kind = "None" if given in (None, [None]) else type(given).__name__
    for call in (load, open_, lambda queries: replay(queries, ROWS)):
        with pytest.raises(InputError, match=rf"{kind}"):
            call(given)


@pytest.mark.parametrize("given", [3, ["x"], object(), b"x"])
@pytest.mark.parametrize(
    "name", ["arrival", "type", "source_time", "max_record", "time_unit", "time_format", "source_column", "csv"]
)
def test_a_keyword_of_a_wrong_type_is_named(name: str, given: Any) -> None:
    with pytest.raises(InputError, match=rf"^{name}: expected a text.*, not {type(given).__name__}$"):
        replay(QUERY, ROWS, **{name: given})


@pytest.mark.parametrize("given", [3, ["x"], {}])
def test_a_path_of_a_wrong_type_is_named(given: Any) -> None:
    with pytest.raises(InputError, match=f"^state: expected a path, not {type(given).__name__}$"):
        open_(QUERY, state=given)
    with pytest.raises(InputError, match=f"^path: expected a path, not {type(given).__name__}$"):
        open_(QUERY).save(given)
    with pytest.raises(InputError, match=r"^deployment: expected a path or a mapping, not "):
        deploy(given or None)

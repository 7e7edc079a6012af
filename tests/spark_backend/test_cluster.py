"""Executors on other machines: how many are waited for, what they must have, and what they are sent."""

from __future__ import annotations

import io
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from querylang.errors import InputError
from spark_backend.executors import (
    KERNELS,
    LONGEST_WAIT,
    NEEDED,
    PACKAGES,
    ExecutorState,
    dependency_files,
    digest,
    fits,
    package,
    problems_of,
    refuse_unfit_driver_python,
    settled_number,
)

ROOT = Path(__file__).resolve().parents[2]


class Clock:
    """Time that passes when somebody sleeps; executors register at given moments."""

    def __init__(self, *arrivals: float) -> None:
        self.moment = 0.0
        self._arrivals = arrivals

    def now(self) -> float:
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.moment += seconds

    def number(self) -> int:
        return sum(arrival <= self.moment for arrival in self._arrivals)

    def settled(self, expected: int = 0) -> int:
        return settled_number(self.number, expected, "spark://host:1", self.now, self.sleep)


def test_executors_that_register_late_are_waited_for() -> None:
    clock = Clock(5.0, 7.5)
    assert clock.settled() == 2
    assert clock.moment == pytest.approx(10.5, abs=0.3)


def test_as_many_as_were_asked_for_are_not_waited_behind() -> None:
    clock = Clock(1.0, 1.2)
    assert clock.settled(expected=2) == 2
    assert clock.moment == pytest.approx(1.2, abs=0.2)


def test_no_executor_is_told_and_in_the_end_refused(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with pytest.raises(InputError, match="no executor of spark://host:1 has registered for 600 seconds: does the"):
        clock.settled()
    assert clock.moment >= LONGEST_WAIT
    assert [record.getMessage()[:66] for record in caplog.records] == [
        "no executor of spark://host:1 has registered for 20 seconds: does "
    ]


VERSIONS = {"numba": "0.68.1", "numpy": "2.4.6", "pandas": "2.3.3", "pyarrow": "26.0.1"}
FIT = ExecutorState(
    "host /executor/0", "/usr/bin/python3", VERSIONS, "/executor/0/ensue-1a/spark_backend/spark_operator.py"
)


def problems(found: ExecutorState) -> Iterator[str]:
    return problems_of(found, "ensue-1a")


def test_what_an_executor_lacks_is_named() -> None:
    assert list(problems(FIT)) == []
    versions = {"numba": "0.67.0", "numpy": "1.26.4"}
    assert list(problems(ExecutorState("host /executor/1", "python3", versions, FIT.ensue))) == [
        "the Python of an executor on host, python3, lacks pandas, pyarrow",
        "the Python of an executor on host, python3, has numba 0.67.0; Ensue needs from 0.68, before 0.69",
        "the Python of an executor on host, python3, has numpy 1.26.4; Ensue needs 2.0 or later",
    ]


def test_another_ensue_on_an_executor_is_refused() -> None:
    found = ExecutorState("host /executor/1", "python3", VERSIONS, "/opt/lib/spark_backend/spark_operator.py")
    assert list(problems(found)) == [
        (
            "the Python of an executor on host, python3, imports Ensue from /opt/lib/spark_backend/spark_operator.py,"
            " not from what the job has sent"
        )
    ]


def test_versions_are_compared_by_their_numbers() -> None:
    assert fits("18.0.0", "18", None)
    assert fits("2.10.1", "2.2", "3")
    assert not fits("2.1.9", "2.2", "3")
    assert not fits("3.0.0rc1", "2.2", "3")


def test_executors_need_what_the_project_needs() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for name, (least, beyond) in NEEDED.items():
        text = f"{name}>={least}" + ("" if beyond is None else f",<{beyond}")
        assert text in wanted


def test_the_package_is_the_same_for_the_same_files() -> None:
    first = package()
    assert digest(first) == digest(package())
    names = zipfile.ZipFile(io.BytesIO(first)).namelist()
    assert {name.split("/")[0] for name in names} == set(PACKAGES)
    assert "spark_backend/log4j2.properties" in names
    assert zipfile.ZipFile(io.BytesIO(package(b"kernels"))).read(KERNELS) == b"kernels"


def test_dependencies_are_the_files_of_the_packages_and_of_what_they_require() -> None:
    files = dict(dependency_files())
    assert {"numpy/__init__.py", "llvmlite/__init__.py", "dateutil/__init__.py", "six.py"} <= set(files)
    assert not [name for name in files if ".." in name or "/tests/" in name or name.endswith(".pyc")]
    assert any(name.startswith("pyarrow-") and name.endswith("/METADATA") for name in files)  # its version is asked for


def test_dependencies_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NEEDED, "no-such-package", ("1", None))  # type: ignore[misc]
    with pytest.raises(InputError, match="no-such-package cannot be added: not installed"):
        list(dependency_files(["no-such-package", "six", "no-such-client"]))


@pytest.mark.parametrize(
    ("answer", "problem"), [("echo 3.8", "here it is Python 3.8, while this one is"), (None, "here it does not exist")]
)
def test_a_python_of_executors_that_the_driver_cannot_run_is_refused(
    tmp_path: Path, answer: str | None, problem: str
) -> None:
    program = tmp_path / "python"
    if answer is not None:
        program.write_text(f"#!/bin/sh\n{answer}\n")
        program.chmod(0o755)
    with pytest.raises(InputError, match=f"executors run '{program}' as Python, .*{problem}"):
        refuse_unfit_driver_python(str(program))


def test_a_python_of_executors_that_is_like_the_drivers_is_fine(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    program.chmod(0o755)
    refuse_unfit_driver_python(str(program))

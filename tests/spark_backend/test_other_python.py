"""A session whose workers run a Python without our packages is refused in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from querylang.errors import InputError
from spark_backend.launch.worker_python import refuse_other_python


def program(folder: Path, answer: str) -> str:
    file = folder / "python"
    file.write_text(f"#!/bin/sh\n{answer}\n")
    file.chmod(0o755)
    return str(file)


def test_this_python_and_one_with_all_packages_are_fine(tmp_path: Path) -> None:
    refuse_other_python(sys.executable)
    refuse_other_python(program(tmp_path, f'exec {sys.executable} "$@"'))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (f'exec {sys.executable} -S -I "$@"', "has no numpy, pandas, pyarrow and numba"),
        ("echo 3 8 pyarrow", "is Python 3.8, while this one is"),
        (f"echo {sys.version_info[0]} {sys.version_info[1]} pyarrow", "has no pyarrow"),
    ],
)
def test_another_one_is_refused_with_the_way_out(tmp_path: Path, answer: str, why: str) -> None:
    other = program(tmp_path, answer)
    with pytest.raises(InputError) as raised:
        refuse_other_python(other)
    assert str(raised.value).startswith(f"this session's workers run {other!r}, which {why}")
    assert 'os.environ["PYSPARK_PYTHON"] = sys.executable' in str(raised.value)


def test_a_python_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match="'no-such-python', which does not exist"):
        refuse_other_python("no-such-python")


def test_a_python_that_does_not_answer_is_left_to_spark(tmp_path: Path) -> None:
    refuse_other_python(program(tmp_path, "exit 1"))

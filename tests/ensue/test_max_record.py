"""The longest record that is read, as an option and as an argument."""

from __future__ import annotations

from pathlib import Path

import pytest

import ensue as api
from querylang.errors import InputError
from tests.ensue.command import Run

QUERY = "event A { string k; }\ninputs { A() key k within 30.0; } find A as a"
LINES = "at,k\n1,x\n2," + "y" * 3000 + "\n3,z\n"


@pytest.mark.parametrize(("size", "used"), [(None, 3), ("64 MB", 3), ("2 kB", 2)])
def test_longer_records_are_malformed(tmp_path: Path, ensue: Run, size: str | None, used: int) -> None:
    file = tmp_path / "a.csv"
    file.write_text(LINES)
    replay = api.replay(QUERY, file, max_record=size)
    assert len(replay.matches) == used
    (tmp_path / "a.query").write_text(QUERY)
    options = [] if size is None else ["--max-record", size]
    done = ensue("replay", str(tmp_path / "a.query"), str(file), *options)
    account = "3 received = 3 used" if used == 3 else "3 received = 2 used + 1 discarded (malformed)"
    assert done.stdout.rstrip().endswith(account)


def test_what_is_not_a_size_is_refused() -> None:
    with pytest.raises(InputError, match="max_record: '16 XB' is not a size from '1 kB' to '1 GB', such as '16 MB'"):
        api.replay(QUERY, [{"at": 1, "k": "x"}], max_record="16 XB")

"""CSV whose rows are lines is read without a look at records; with one the answer is the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from runtime.file_forms import Asked
from runtime.reading.formats import csv_files
from runtime.reading.formats.blocks import Blocks

CELLS = ("1", "20.5", "", "x y", '""', '"a"', '"a,b"', '"a""b"', '"a\nb"', "é")
ODD = ('"', 'a"b', '"a"b', "\n", "\r", "\r\n", " ", ",", '"a\r\nb"', "x,y")


def random_text(rng: random.Random) -> bytes:
    """Rows of three cells, of which few are odd, or none."""
    end, oddity = rng.choice(["\n", "\n", "\r\n"]), rng.choice([0.0, 0.0, 0.05])
    plain = CELLS if rng.random() < 0.5 else tuple(cell for cell in CELLS if "\n" not in cell)
    rows = [
        ",".join(rng.choice(ODD) if rng.random() < oddity else rng.choice(plain) for _ in "abc")
        for _ in range(rng.randint(0, 40))
    ]
    return ("a,b,c\n" + end.join(rows) + rng.choice(["", end])).encode()


def told(path: Path, size: int, longest: int) -> list[Any]:
    """All rows with their number, line and text, and what each unreadable one is called."""
    found: list[Any] = []
    with patch.object(Blocks.__init__, "__defaults__", (size,)):
        for part in csv_files.read_csv(path, "s", Asked(max_record=longest)):
            rows = part.columns.to_pylist()
            found += [(int(n), part.describe(int(n)), row) for n, row in zip(part.numbers, rows, strict=True)]
            found += [(bad.number, bad.place, bad.reason, bad.raw) for bad in part.unreadable]
    return sorted(found, key=lambda row: row[0])


@pytest.mark.parametrize("seed", range(60))
def test_the_answer_is_that_of_looking_for_records(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path, size, longest = tmp_path / "e.csv", rng.choice([20, 100, 1 << 20]), rng.choice([30, 1 << 20])
    path.write_bytes(random_text(rng))
    quick = told(path, size, longest)
    with patch.object(csv_files._Parts, "_line_by_line", return_value=None):
        assert quick == told(path, size, longest)

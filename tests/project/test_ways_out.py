"""What leaves the process of a job passes the modules of the table `WAYS_OUT`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

import pytest

from tests.project.import_rules import STAYS_INSIDE, WAYS_OUT
from tests.project.modules import FILES
from tests.project.repository import ROOT
from tests.project.ways_out import is_in, ways_used

JOB = "job_engine."

WAYS = {name: way for way, (names, _) in WAYS_OUT.items() for name in names.split()} | dict.fromkeys(
    STAYS_INSIDE.split(), ""
)
"""By the beginning of a name: its way; "" = it stays inside."""

ALLOWED = {way: modules.split() for way, (_, modules) in WAYS_OUT.items()}


def strayed(module: str, used: Mapping[str, list[str]]) -> list[str]:
    """What a module uses of ways that are not its own.

    module: below `job_engine`
    used: by way
    """
    return [
        f"{module} uses {name} ({way})"
        for way, names in used.items()
        if way and not is_in(module, ALLOWED[way])
        for name in names
    ]


MODULES = [name.removeprefix(JOB) for name in FILES if name.startswith(JOB)]


@cache
def used_by(module: str) -> Mapping[str, list[str]]:
    """By way: what a module uses of it."""
    return ways_used(FILES[f"{JOB}{module}"].read_text(), WAYS)


@pytest.mark.parametrize("module", MODULES)
def test_what_leaves_the_process_goes_its_way(module: str) -> None:
    assert strayed(module, used_by(module)) == []


@pytest.mark.parametrize("way", WAYS_OUT)
def test_every_module_of_a_way_goes_it(way: str) -> None:
    going = [module for module in MODULES if way in used_by(module)]
    assert [name for name in ALLOWED[way] if not any(is_in(module, [name]) for module in going)] == []


def documented(text: str) -> dict[str, list[str]]:
    """By way: its modules, as a table of Markdown has them."""
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {row[0].strip(): re.findall("`([^`]+)`", row[1].replace("/", ".")) for row in rows[1:]}


def test_the_document_has_the_ways() -> None:
    section = (ROOT / "docs" / "architecture.md").read_text().partition("## Ways out\n")[2].partition("\n## ")[0]
    assert documented(section) == ALLOWED
    assert documented("| way | modules |\n|---|---|\n| a | `b/c`, `d` | `e` |\n") == {"a": ["b.c", "d"]}


WRONG = {
    "import time\ndef f(): return time.time()\n": "time.time (clock)",
    "from time import monotonic as now\ndef f(clock=now): ...\n": "time.monotonic (clock)",
    "from datetime import datetime\nx = datetime.now(tz=None)\n": "datetime.datetime.now (clock)",
    "def f(path): return open(path)\n": "open (files)",
    "print('a')\n": "print (the terminal)",
    "import numpy as np\nx = np.load('a')\n": "numpy.load (files)",
    "import os\ndef f(): return os.open('a', 0)\n": "os.open (files)",
    "from pathlib import Path\nx = Path('a') / 'b'\n": "pathlib.Path (files)",
    "from pathlib import Path\nx = list(map(Path, 'ab'))\n": "pathlib.Path (files)",
    "from pathlib import Path\nx = Path.cwd()\n": "pathlib.Path.cwd (files)",
    "def f():\n    import pyarrow.parquet as pq\n    pq.read_table('a')\n": "pyarrow.parquet.read_table (files of Arrow)",
    "import pyarrow as pa\nx = pa.OSFile('a')\n": "pyarrow.OSFile (files of Arrow)",
    "from pyarrow import fs\nx = fs.S3FileSystem()\n": "pyarrow.fs.S3FileSystem (stores)",
    "import uuid\nx = uuid.uuid4().hex[:8]\n": "uuid.uuid4 (chance)",
    "from concurrent.futures import ThreadPoolExecutor as Pool\nx = Pool()\n": (
        "concurrent.futures.ThreadPoolExecutor (threads)"
    ),
}
"""Sources that go somewhere, and where."""


@pytest.mark.parametrize("source", WRONG)
def test_a_way_that_is_not_allowed_is_noticed(source: str) -> None:
    assert strayed("wire.reports", ways_used(source, WAYS)) == [f"wire.reports uses {WRONG[source]}"]


INSIDE = [
    "from pathlib import Path\ndef f(x: Path) -> Path | None: return x if isinstance(x, Path) else None\n",
    "from pathlib import Path\nPlace = Path | str\n",
    "import os\ndef f(x: os.PathLike[str]) -> str: return os.fspath(x)\n",
    "import subprocess\ndef f(x: subprocess.Popen[str], *more: subprocess.Popen[str]) -> None: ...\n",
    "class A:\n    def open(self): ...\ndef f(a): return a.open()\n",
    "import clock\nx = clock.time()\n",
]


@pytest.mark.parametrize("source", INSIDE)
def test_what_stays_inside_is_allowed_anywhere(source: str) -> None:
    assert strayed("wire.reports", ways_used(source, WAYS)) == []

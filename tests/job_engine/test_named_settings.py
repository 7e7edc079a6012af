"""What reads tables names options of commands; a job names the settings of its sources in their place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from job_engine.errors import as_settings
from job_engine.job.job import run
from querylang.errors import InputError
from tests.project.repository import ROOT, tracked_files

NOT_OF_SOURCES = {"format", "json", "key", "no-flush", "table"}
"""Options that only commands about tables name, none of which a job runs."""


@pytest.mark.parametrize(
    ("option", "setting"),
    [
        ("`--type NAME`", "`type: NAME` of the source"),
        ("`--source-time NAME`", "`source_time: NAME` of the source"),
        ("`--offset-column NAME`", "`offset: NAME` of the source"),
        ('`--time-format "%d.%m.%Y"`', '`time_format: "%d.%m.%Y"` of the source'),
        ("`--csv encoding=utf-16`", '`csv: {encoding: "utf-16"}` of the source'),
        ('`--csv "delimiter=;"`', '`csv: {delimiter: ";"}` of the source'),
        ("`--apply`", "`--apply`"),
        ("`--engine local`", "`--engine local`"),
    ],
)
def test_an_option_becomes_the_setting_that_says_the_same(option: str, setting: str) -> None:
    assert as_settings(f"no; {option} helps") == f"no; {setting} helps"


def test_each_option_that_a_reader_names_has_a_setting() -> None:
    files = [path for path in tracked_files() if path.suffix == ".py" and path.is_relative_to(ROOT / "runtime")]
    named = {found for path in files for found in re.findall(r"`--([a-z-]+)", path.read_text("utf-8"))}
    assert {"type", "arrival", "csv", "time-format"} < named
    left = {name for name in named if as_settings(f"`--{name} a=b`") == f"`--{name} a=b`"}
    assert left == NOT_OF_SOURCES


def test_a_job_that_cannot_start_names_a_setting(tmp_path: Path) -> None:
    (tmp_path / "q.query").write_text(
        "event A { integer x; }\nquery Q { inputs { A() within 9.0 wait 1.0; } find A as a }\n"
    )
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"at": 1.0, "x": 3}\n')
    deployment = {
        "name": "j",
        "engine": "local",
        "queries": ["q.query"],
        "sources": {"s": {"format": "json", "path": "in", "event": "A"}},
        "sinks": {"matches": {"format": "csv", "path": "out"}},
        "checkpoint": "state",
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(deployment))
    with pytest.raises(InputError, match=r"name it, `source_time: NAME` of the source$"):
        run(path, once=True)

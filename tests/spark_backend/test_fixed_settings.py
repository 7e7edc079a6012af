"""What may change between two runs on one checkpoint: refused by name, or free."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from job_engine.deployment_file import load_deployment
from job_engine.deployment_sections import sink_keys
from job_engine.job.checkpoint.checkpoint_record import read_record, write_record
from job_engine.job.preflight import Checked, checked
from job_engine.setting_keys import JOB_KEYS
from job_engine.sources.kinds import kinds, source_keys
from querylang.errors import InputError
from tests.support.sensors import project

SOURCE = "readings: {format: parquet, path: data, options: {maxFilesPerTrigger: 1}}"


def preflight(path: Path, environment: dict[str, str] | None = None) -> Checked:
    return checked(load_deployment(path, environment or {}))


def started(path: Path, environment: dict[str, str] | None = None) -> None:
    """Make a deployment's checkpoint."""
    ready = preflight(path, environment)
    write_record(ready.deployment.checkpoint, ready.record)


def written(path: Path, source: str) -> Path:
    text = path.read_text()
    assert SOURCE in text
    path.write_text(text.replace(SOURCE, source))
    return path


@pytest.mark.parametrize(
    ("source", "difference"),
    [
        ("readings: {format: csv, path: data}", "in 'readings' 'format' was parquet and is csv"),
        ("readings: {format: parquet, path: more}", "in 'readings' 'path' was {0}/data and is {0}/more"),
        ("readings: {format: parquet, path: data, event: Reading}", "in 'readings' 'event' was not set and is Reading"),
        ("readings: {format: parquet, path: data, arrival: ts}", "in 'readings' 'arrival' was not set and is ts"),
        ("readings: {format: parquet, path: data, type_field: kind}", "in 'readings' 'type_field' was not set and is kind"),
        ("readings: {format: parquet, path: data, source_time: at}", "in 'readings' 'source_time' was not set and is at"),
        (
            "readings: {format: parquet, path: data, options: {recursiveFileLookup: true}}",
            "in 'readings' 'options.recursiveFileLookup' was not set and is true",
        ),
        (
            "readings: {format: parquet, path: data, options: {pathGlobFilter: a*}}",
            "in 'readings' 'options.pathGlobFilter' was not set and is a*",
        ),
    ],
)  # fmt: skip
def test_what_changes_records_or_their_meaning_is_refused_by_name(tmp_path: Path, source: str, difference: str) -> None:
    path = project(tmp_path)
    (tmp_path / "more").mkdir()
    started(path)
    with pytest.raises(InputError, match=re.escape(difference.format(tmp_path))):
        preflight(written(path, source))


def test_how_fast_records_are_read_is_free(tmp_path: Path) -> None:
    path = project(tmp_path)
    started(path)
    written(path, "readings: {format: parquet, path: data, options: {maxFilesPerTrigger: 7, maxBytesPerTrigger: 9}}")
    path.write_text(path.read_text().replace("name: sensors", "name: others") + "trigger: 5s\n")
    preflight(path)


def test_an_ordering_is_compared_by_its_meaning(tmp_path: Path) -> None:
    path = project(tmp_path)
    source = "readings: {{format: parquet, path: data, ordering: {}}}"
    started(written(path, source.format("{policy: apama, leeway: 5s}")))
    good = path.read_text()
    path.write_text(good.replace("{policy: apama, leeway: 5s}", "apama leeway=5000ms"))
    preflight(path)
    path.write_text(good.replace("leeway: 5s", "leeway: 7s"))
    with pytest.raises(InputError, match=r"in 'readings' 'ordering' was apama .*5000000.* and is apama .*7000000"):
        preflight(path)


def test_values_from_the_environment_are_kept_as_hashes(tmp_path: Path) -> None:
    path = written(project(tmp_path), "readings: {format: parquet, path: '${PLACE}', event: '${KIND}'}")
    environment = {"PLACE": str(tmp_path / "data"), "KIND": "Reading"}
    (tmp_path / "more").mkdir()
    started(path, environment)
    text = (tmp_path / "state" / "ensue.json").read_text()
    kept = json.loads(text)["sources"]["readings"]
    assert (kept["format"], sorted(kept)) == ("parquet", ["event", "format", "path"])
    assert str(tmp_path / "data") not in text
    assert '"Reading"' not in text
    preflight(path, environment)
    with pytest.raises(InputError, match=r"'path' was another value and is \$\{PLACE\}\.") as caught:
        preflight(path, environment | {"PLACE": str(tmp_path / "more")})
    assert str(tmp_path / "more") not in str(caught.value)
    path.write_text(path.read_text().replace("'${PLACE}'", "data"))
    preflight(path, environment)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"version": 1, "identity": "a"}', "was made by release 0.1, which this one cannot continue; choose a new"),
        ('{"version": 9}', "was written in version 9 of the record; this release reads version 8"),
        ('{"version": 2, "identity"', r"ensue.json: is damaged: .*\. Restore it from a copy, or choose another"),
        ('{"version": 2}', r"ensue.json: is damaged: 'identity' is missing \(version 2\)\. Restore it"),
        ("[]", r"ensue.json: is damaged: "),
        ('{"version": 2, "queries": [], "extra": 1}', r"ensue.json: is damaged: "),
    ],
)
def test_records_that_cannot_be_read_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "ensue.json").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_record(tmp_path)
    assert "\n" not in str(caught.value)


def test_the_page_of_deployment_files_has_every_key_and_its_class() -> None:
    text = Path("docs/deployment.md").read_text()
    tables = {"The file itself": JOB_KEYS, "A source": source_keys(), "A sink": sink_keys()}
    for title, keys in tables.items():
        section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| `(\w+): .*\| (fixed|applied|free)\b[^|]*\|$", section, re.MULTILINE)
        assert dict(rows) == {key: str(change) for key, change in keys.items()}
    options = re.split(r"\sare\s+fixed", text.partition("## Options of a source\n")[2])[0]
    fixed = {key for kind in kinds() for key, change in kind.options.items() if str(change) == "fixed"}
    assert set(re.findall(r"`([\w.]+)`", options)) == fixed

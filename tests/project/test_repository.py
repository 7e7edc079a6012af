"""The repository stands alone: what it names is in it, what runs in CI is one command, what it promises is there."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from querylang import format_text
from tests.conftest import ON_ONE_BROKER, ON_ONE_SESSION, STARTED_FIRST
from tests.project.repository import PACKAGES, ROOT, tracked_files

TEXT = {".py", ".md", ".toml", ".yaml", ".yml", ".query", ".mon", ".sh", ".csv", ".jsonl", ".lock", ""}
ELSEWHERE = re.compile(r"(?<![\w.~$/])/(?:work|home|root|mnt|Users)/")
UPWARDS = re.compile(r"(?:\.\./)+[\w./-]*")


def text_files() -> list[Path]:
    return [path for path in tracked_files() if path.suffix in TEXT and path.is_file()]


def laid_out_files() -> list[Path]:
    """All but those that show what a layout changes."""
    shown = ROOT / "tests" / "querylang" / "formatter" / "fmt"
    return [path for path in tracked_files() if path.suffix in {".query", ".mon"} and path.parent != shown]


def test_continuous_integration_runs_make_test_only() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "make test"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_the_files_that_are_named_for_workers_are_here() -> None:
    named = (*STARTED_FIRST, *ON_ONE_BROKER, *ON_ONE_SESSION)
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("asked", "places"),
    [("broker: Broker", ON_ONE_BROKER), ("spark: SparkSession", (*ON_ONE_BROKER, *ON_ONE_SESSION))],
)
def test_tests_that_ask_for_what_is_slow_to_start_share_a_worker(asked: str, places: tuple[str, ...]) -> None:
    asks = re.compile(rf"^def test_\w+\([^)]*\b{asked}", re.MULTILINE)
    files = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    found = [file for file, text in files.items() if asks.search(text)]
    assert found
    assert [file for file in found if not file.startswith(places)] == []


def test_no_file_names_a_place_on_somebody_s_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in text_files()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if ELSEWHERE.search(line) and path != Path(__file__).resolve()
    ]
    assert found == []


@pytest.mark.parametrize("suffix", [".md", ".yaml", ".toml"])
def test_relative_paths_stay_inside_the_repository(suffix: str) -> None:
    outside = [
        f"{path.relative_to(ROOT)}: {step}"
        for path in text_files()
        if path.suffix == suffix
        for step in UPWARDS.findall(path.read_text())
        if not (path.parent / step).resolve().is_relative_to(ROOT)
    ]
    assert outside == []


def test_links_of_the_documents_lead_somewhere() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in text_files()
        if path.suffix == ".md"
        for target in re.findall(r"\]\(([^)#\s]+)", path.read_text())
        if not target.startswith(("http://", "https://", "mailto:")) and not (path.parent / target).exists()
    ]
    assert broken == []


@pytest.mark.parametrize("path", laid_out_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_query_files_are_in_the_canonical_layout(path: Path) -> None:
    text = path.read_text()
    assert format_text(text, str(path)) == text


def locked_packages() -> list[tuple[str, str, list[str]]]:
    """Packages of the lock file with version and hashes."""
    text = re.sub(r"^#.*\n", "", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE).replace("\\\n", "")
    parts = [line.split() for line in text.splitlines()]
    assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", part) for _, *hashes in parts for part in hashes)
    return [(*name.split("=="), hashes) for name, *hashes in parts]  # type: ignore[misc]


def test_the_lock_file_names_every_dependency_exactly() -> None:
    locked = {package: version for package, version, _ in locked_packages()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["demo"],
        *project["project"]["optional-dependencies"]["test"],
        *project["build-system"]["requires"],
    ]
    names = {re.split(r"[<>=!~ \[]", requirement)[0].lower() for requirement in wanted}
    assert names - locked.keys() == set()
    assert all(re.fullmatch(r"[\w.!+]+", version) for version in locked.values())


def test_the_lock_file_has_the_hash_of_every_file_that_may_be_installed() -> None:
    assert [package for package, _, hashes in locked_packages() if not hashes] == []
    assert "--require-hashes --requirement requirements.lock" in (ROOT / "tools/setup.sh").read_text()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()


def looked_up(source: str) -> list[str]:
    """Tests whether a list of names has one."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.In | ast.NotIn)
        and isinstance(node.comparators[0], ast.Attribute)
        and node.comparators[0].attr == "column_names"
    ]


def test_no_column_is_looked_up_in_a_list_of_names() -> None:
    """Each look makes the list anew, so a table of many columns would take the square of their number."""
    found = {
        str(path.relative_to(ROOT)): hits
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if (hits := looked_up(path.read_text()))
    }
    assert found == {}
    assert looked_up("x = 1 if 'a' not in t.column_names else 2")

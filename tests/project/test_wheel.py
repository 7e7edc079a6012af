"""The wheel holds all that it needs: built, installed into an empty environment, used far from the source tree."""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.project.repository import PACKAGES, ROOT

QUERY = """
inputs { A() within 30.0; }
find A as a1 -> A as a2 where a2.v > a1.v
"""
EVENTS = "at,event,v\n10:00:00,A,1.0\n10:00:10,A,3.0\n10:00:20,A,2.0\n"


def run(*command: str | Path, folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [*map(str, command)], check=False, cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; the packages it depends on are seen where they are, this source tree is not."""
    environment = tmp_path_factory.mktemp("environment") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", environment, folder=environment.parent)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, folder=environment.parent)
    (packages,) = (environment / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return environment


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_only_an_extra_of_the_wheel_requires_spark(wheel: Path) -> None:
    content = zipfile.ZipFile(wheel)
    (name,) = (name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
    required = email.message_from_bytes(content.read(name)).get_all("Requires-Dist", [])
    found = [item.partition(";")[2].strip() for item in required if item.startswith(("pyspark", "py4j"))]
    assert sorted(found) == ["extra == 'demo'", "extra == 'spark'", "extra == 'test'"]


def test_a_query_is_checked_and_replayed_without_writing_to_the_installation(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "rising.query").write_text(QUERY)
    (tmp_path / "events.csv").write_text(EVENTS)
    ensue = installed / "bin" / "ensue"
    before = files(installed)
    run(ensue, "check", "rising.query", folder=tmp_path)
    matches = run(ensue, "replay", "rising.query", "events.csv", "--format", "matches", folder=tmp_path)
    assert matches.count('"match_id"') == 2
    assert files(installed) == before


def test_it_runs_from_the_installation(installed: Path, tmp_path: Path) -> None:
    place = run(installed / "bin" / "python", "-c", "import ensue; print(ensue.__file__)", folder=tmp_path)
    assert Path(place.strip()).is_relative_to(installed)


def dockerfile() -> list[tuple[str, str]]:
    """The steps of the example: instruction and the rest of its line."""
    lines = (ROOT / "docs" / "deploy" / "Dockerfile").read_text().splitlines()
    steps = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return [(instruction, rest) for instruction, _, rest in steps]


def test_the_dockerfile_copies_what_a_wheel_is_built_of(tmp_path: Path, wheel: Path) -> None:
    copied = [rest.split() for instruction, rest in dockerfile() if instruction == "COPY" and "--from" not in rest]
    for *sources, target in copied:
        for source in sources:
            place = tmp_path / target / (source if target == "./" else "")
            (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, place)
    run(
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        tmp_path / "wheels",
        ".",
        folder=tmp_path,
    )
    (built,) = (tmp_path / "wheels").glob("*.whl")
    assert sorted(names_of(built)) == sorted(names_of(wheel))


def test_the_image_has_the_command_and_the_extras_of_its_example(installed: Path, wheel: Path, tmp_path: Path) -> None:
    steps = dockerfile()
    (entry,) = (json.loads(rest) for instruction, rest in steps if instruction == "ENTRYPOINT")
    (arguments,) = (json.loads(rest) for instruction, rest in steps if instruction == "CMD")
    assert run(installed / "bin" / entry[0], *arguments, folder=tmp_path).strip().endswith("0.1.0")
    (extras,) = (re.findall(r"\[([a-z,]+)\]", rest) for instruction, rest in steps if ".whl" in rest)
    metadata = zipfile.ZipFile(wheel)
    (name,) = (name for name in metadata.namelist() if name.endswith(".dist-info/METADATA"))
    provided = email.message_from_bytes(metadata.read(name)).get_all("Provides-Extra", [])
    assert set(extras[0].split(",")) <= set(provided)


def names_of(wheel: Path) -> list[str]:
    """The files of a wheel, without Python's own caches."""
    return [name for name in zipfile.ZipFile(wheel).namelist() if "__pycache__" not in name]


def files(folder: Path) -> set[str]:
    """Every file of the installation but Python's own caches."""
    return {str(path) for path in folder.rglob("*") if "__pycache__" not in path.parts}

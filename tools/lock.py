"""Write `requirements.lock`: the exact version of everything that `make demo` and `make test` install.

pip-tools, in a throw-away environment, resolves the project with its extras as if nothing were installed. It also writes
the hash of every file of each version, so that no other file is ever installed. `make lock` runs it; a person reads the
difference before committing it.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

HEADER = "# Every package that the demo and the tests install, exactly. Written by `make lock`; do not edit.\n"
HELD = "pyspark==4.2.0\n"  # the version that the Kafka connector and Delta are known to work with
PIP_TOOLS = "pip-tools==7.6.2"
ROOT = Path(__file__).resolve().parent.parent

EXTRAS = ("--extra", "demo", "--extra", "test")
BARE = ("--quiet", "--no-header", "--no-annotate", "--strip-extras", "--no-emit-index-url", "--no-emit-options")
"""Packages and hashes alone: what the lock file says must not depend on who wrote it."""


def resolve() -> str:
    """The lines of everything that `.[demo,test]` needs, in order of name, without the project."""
    with TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder, "bin", "python"))
        held = Path(folder, "held.in")
        held.write_text(HELD)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-compile", PIP_TOOLS], check=True)
        command = [python, "-m", "piptools", "compile", *BARE, *EXTRAS, "--allow-unsafe", "--generate-hashes"]
        files = ["--output-file", str(Path(folder, "lock")), str(ROOT / "pyproject.toml"), str(held)]
        subprocess.run([*command, *files], check=True, stdout=sys.stderr)
        return Path(folder, "lock").read_text()


if __name__ == "__main__":
    lock = ROOT / "requirements.lock"
    lock.write_text(HEADER + resolve())
    print(f"wrote {lock.relative_to(ROOT)}")

"""Write `requirements.lock`: the exact version of everything that `make demo` and `make test` install.

Asks pip to resolve the project with its extras, as if nothing were installed, and writes down what it chose; nothing is
installed. `make lock` runs it; a person reads the difference before committing it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HEADER = "# Every package that the demo and the tests install, exactly. Written by `make lock`; do not edit.\n"
HELD = ("pyspark==4.2.0",)  # the version that the Kafka connector and Delta are known to work with
ROOT = Path(__file__).resolve().parent.parent


def resolve() -> list[str]:
    """The lines `name==version` of everything that `.[demo,test]` needs, in order of name, without the project."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    answer = subprocess.run([*command, *HELD, f"{ROOT}[demo,test]"], check=True, stdout=subprocess.PIPE, text=True)
    chosen = [item["metadata"] for item in json.loads(answer.stdout)["install"]]
    return sorted(f"{item['name'].lower()}=={item['version']}" for item in chosen if item["name"] != "ensue")


if __name__ == "__main__":
    lock = ROOT / "requirements.lock"
    lock.write_text(HEADER + "\n".join(resolve()) + "\n")
    print(f"wrote {lock.relative_to(ROOT)}")

"""Build and start the systems that run in Java."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SYSTEMS = ("flink-by-hand", "flink-cep", "flink-sql", "esper", "siddhi")
SOURCES = Path(__file__).resolve().parent / "java"
BUILD = Path(__file__).resolve().parents[2] / "build" / "peers"
BOOK_HEAP = "4 GB"
_CLASSES = f"{BUILD / 'classes'}:{BUILD / 'jars'}/*"


def build() -> None:
    """Fetch the libraries from Maven Central and compile; raises RuntimeError if Maven is not installed."""
    if shutil.which("mvn") is None:
        raise RuntimeError("the systems in Java need Maven: apt-get install maven")
    subprocess.run(
        [
            *("mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), f"-DbuildDirectory={BUILD}", "compile"),
            *("dependency:copy-dependencies", f"-DoutputDirectory={BUILD / 'jars'}"),
        ],
        check=True,
    )


def command() -> list[str]:
    """Java with the heap that all of them get; what follows are the arguments of `Main`."""
    return ["java", "-Xmx6g", "-cp", _CLASSES, "peers.Main"]


def book_command() -> list[str]:
    """The same for a book; what follows are the arguments of `Books`. Flink ends a chain of operators by recursion: a deep stack."""
    return ["java", f"-Xmx{BOOK_HEAP.replace(' GB', 'g')}", "-Xss64m", "-cp", _CLASSES, "peers.Books"]

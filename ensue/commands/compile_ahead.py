"""`ensue compile`: compile the kernels before they are needed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from ensue.commands.output import print_line

_CODE = (
    "import sys; from runtime.compile_notice import tell_on; tell_on(sys.stderr); "
    "from ensue.compile_kernels import compile_all; compile_all()"
)


def compile_ahead(
    out: Annotated[Path | None, typer.Option(help="write them to an archive, for `ENSUE_KERNELS` elsewhere")] = None,
) -> None:
    """Compile the kernels that queries need, for this machine or for an archive."""
    from runtime.shipped_kernels import VARIABLE, pack

    began = monotonic()
    if out is None:
        _compile({})
        _run([sys.executable, "-m", "ensue.archive_classes"], {}, output=subprocess.DEVNULL)
        print_line(f"compiled in {monotonic() - began:.0f} s")
        return
    with tempfile.TemporaryDirectory() as folder:
        _compile({VARIABLE: folder})
        pack(Path(folder), out)
    print_line(f"compiled in {monotonic() - began:.0f} s: {out}, {out.stat().st_size / 1e6:.1f} MB")


def _compile(settings: dict[str, str]) -> None:
    """In a process of its own, which has not chosen yet how it runs kernels."""
    code = _run([sys.executable, "-c", _CODE], {"ENSUE_COMPILE": "always"} | settings)
    if code != 0:
        raise typer.Exit(code)


def _run(command: list[str], settings: dict[str, str], output: int | None = None) -> int:
    done = subprocess.run(command, env=os.environ | settings, stdout=output, stderr=output, check=False)  # noqa: S603  our own code
    return done.returncode

"""`ensue compile`: compile the kernels before they are needed, and archive Spark's classes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from ensue.commands.common import print_error, print_line
from runtime.progress_line import ONCE, ProgressLine
from runtime.temporary import temporary_folder

_CODE = "from ensue.commands.compile_ahead import compile_and_tell; compile_and_tell()"


def compile_ahead(
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Write them to an archive, for `ENSUE_KERNELS` on other machines."),
    ] = None,
) -> None:
    """Compile the kernels that queries need, for this machine or for an archive."""
    began = monotonic()
    if out is None:
        _compile({})
        print_line(f"compiled in {monotonic() - began:.0f} s")
        _archive_classes()
        return
    archive_kernels(out)
    print_line(f"compiled in {monotonic() - began:.0f} s: {out}, {out.stat().st_size / 1e6:.1f} MB")


def _archive_classes() -> None:
    """Archive the classes of Spark, where Java is."""
    from spark_backend.launch.session_settings import archive_file

    if archive_file() is None:
        return
    began = monotonic()
    sys.stderr.write("archiving Spark's classes, so that jobs start sooner: another half minute of a processor\n")
    code = _run([sys.executable, "-m", "ensue.archive_classes"], {}, output=subprocess.DEVNULL)
    if code != 0:
        print_error("the archive of Spark's classes was not made: jobs will start more slowly")
        return
    print_line(f"archived in {monotonic() - began:.0f} s")


def archive_kernels(out: Path) -> None:
    """Compile all kernels, and write an archive of them. Raises InputError."""
    from runtime.compiling.files import VARIABLE, pack

    with temporary_folder() as folder:
        _compile({VARIABLE: str(folder)})
        pack(folder, out)


def compile_and_tell() -> None:
    """Compile; on a terminal with a bar, elsewhere with one line before."""
    from ensue.compile_kernels import compile_all

    line = ProgressLine(sys.stderr, "compiling for this machine, once", "kernels")
    if not sys.stderr.isatty():
        sys.stderr.write(f"{ONCE}\n")

    def tell(done: int, total: int) -> None:
        line.total = total
        line.update(done)

    compile_all(tell)
    line.close()


def _compile(settings: dict[str, str]) -> None:
    """In a process of its own, which has not chosen yet how it runs kernels."""
    code = _run([sys.executable, "-c", _CODE], {"ENSUE_COMPILE": "never"} | settings)
    if code != 0:
        raise typer.Exit(code)


def _run(command: list[str], settings: dict[str, str], output: int | None = None) -> int:
    done = subprocess.run(command, env=os.environ | settings, stdout=output, stderr=output, check=False)  # noqa: S603  our own code
    return done.returncode


def package(
    out: Annotated[Path, typer.Option(metavar="PATH", help="Where the archive is written.")],
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Compile the kernels for machines like this one, and add them.")
    ] = False,
    with_dependencies: Annotated[
        bool,
        typer.Option(
            "--with-dependencies",
            help="Add numpy, pandas, pyarrow and numba, as they are installed here, with what they require.",
        ),
    ] = False,
) -> None:
    """Write an archive of Ensue, for executors that have none. Jobs send one by themselves."""
    from spark_backend.executors import dependency_files, write_package

    compiled = _compiled_kernels() if kernels else None
    write_package(out, compiled, dependency_files() if with_dependencies else ())
    print_line(f"{out}, {out.stat().st_size / 1e6:.1f} MB")


def _compiled_kernels() -> bytes:
    with temporary_folder() as folder:
        archive = folder / "kernels.zip"
        archive_kernels(archive)
        return archive.read_bytes()

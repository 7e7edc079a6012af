"""`make mutants`: how many small changes of product code the tests notice, per package.

The listed changes are tried in copies of what is committed. First a run of the whole suite notes which tests reach
their lines, and a run of the kernels' tests as plain Python does the same for kernels. Then each change meets
those tests, cheap ones first, until one fails.

    python -m tests.mutation                     all of it: about an hour and a half on two processors
    python -m tests.mutation --keep build        notes that are there are used; the test that killed a change comes first
    python -m tests.mutation --keep build --known  that test alone: minutes
    python -m tests.mutation --draw 20           draw a new list with this seed
    python -m tests.mutation --redraw 20         draw others for those whose lines are not there any more
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.changes import PACKAGES, ROOT, find, possible_changes
from tests.mutation.clones import clone, environment, insert_notes, keep_kernels
from tests.mutation.killing import Verdict, verdict
from tests.mutation.listed import Listed, draw, read_list, redrawn, write_list
from tests.mutation.noting import FOLDER
from tests.mutation.reach import Reach, read_reach

COUNTS = {"querylang": 27, "runtime": 50, "job_engine": 42, "spark_backend": 20, "ensue": 24}
"""In proportion to their lines, and enough of the small one."""

OF_KERNELS = ("tests/runtime", "tests/conformance", "tests/differential", "tests/oracle")


def main() -> None:
    options = _options()
    if options.draw is not None:
        write_list(draw(options.draw, COUNTS))
        return
    if options.redraw is not None:
        write_list(redrawn(read_list(), options.redraw))
        return
    keep = options.keep.resolve()
    keep.mkdir(parents=True, exist_ok=True)
    listed = [each for each in read_list() if not each.equivalent and options.only in {None, each.number}]
    folders = [keep / "notes", keep / "notes of kernels"]
    if not all(folder.exists() for folder in folders):
        _note_reach(listed, keep)
    results = keep / "verdicts.jsonl"
    known = {each.number: each.test for each in _read(results) if each.test}
    if options.known:
        listed = [each for each in listed if each.number in known]
    found = _verdicts(listed, read_reach(*folders), known, keep, processes=options.processes, only_known=options.known)
    if not options.known and options.only is None:
        results.write_text("".join(f"{json.dumps(asdict(each))}\n" for each in found), "utf-8")
    _print(listed, found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--keep", type=Path, default=ROOT / "build" / "mutants", help="a folder for copies and notes")
    parser.add_argument("--known", action="store_true", help="run only the tests that killed a change before")
    parser.add_argument("--only", type=int, help="the number of one change")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--draw", type=int, help="draw a new list with this seed")
    parser.add_argument("--redraw", type=int, help="draw others for those whose lines are not there any more")
    return parser.parse_args()


def _note_reach(listed: list[Listed], keep: Path) -> None:
    """Run the suite in copies whose listed lines note that they are reached."""
    places = {change: spot for package in PACKAGES for change, spot in possible_changes(package)}
    spots = {each.number: places[each.change] for each in listed if each.change in places}
    for name, chosen, more in (("notes", (), {}), ("notes of kernels", OF_KERNELS, {"ENSUE_COMPILE": "never"})):
        copy = clone(keep / "copy")
        insert_notes(copy, {number: spot for number, spot in spots.items() if more or not spot.in_kernel})
        notes = keep / name
        notes.mkdir(exist_ok=True)
        workers = ("--numprocesses=auto", "--dist=loadfile", "--no-loadscope-reorder")
        command = (".venv/bin/python", "-m", "pytest", "-q", *workers, "-p", "tests.mutation.noting", *chosen)
        subprocess.run(command, cwd=copy, env=environment(copy, **{FOLDER: str(notes)}, **more), check=False)


def _verdicts(
    listed: list[Listed], reach: Reach, known: dict[int, str], keep: Path, *, processes: int, only_known: bool
) -> list[Verdict]:
    copies = SimpleQueue[Path]()
    for number in range(processes):
        copies.put(keep_kernels(clone(keep / f"copy {number}")))

    def judged(each: Listed) -> Verdict:
        copy = copies.get()
        try:
            found = verdict(each, reach, copy, known.get(each.number), only_known=only_known)
        finally:
            copies.put(copy)
        print(each.number, found.outcome, found.test, flush=True)
        return found

    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(judged, listed))


def _read(results: Path) -> list[Verdict]:
    lines = results.read_text("utf-8").splitlines() if results.exists() else []
    return [Verdict(**json.loads(line)) for line in lines]


def _print(listed: list[Listed], found: list[Verdict]) -> None:
    """A table of outcomes per package, and what no test noticed."""
    package = {each.number: each.change.package for each in listed}
    outcomes = Counter((package[each.number], each.outcome) for each in found)
    kinds = ("killed", "survived", "not reached", "lost")
    print(f"{'':15}{''.join(f'{kind:>12}' for kind in kinds)}")
    for name in PACKAGES:
        print(f"{name:15}{''.join(f'{outcomes[name, kind]:12}' for kind in kinds)}")
    for each, verdict_ in zip(listed, found, strict=True):
        if verdict_.outcome != "killed":
            spot = find(each.change)
            where = f"{spot.path.relative_to(ROOT)}:{spot.line}" if spot is not None else "?"
            print(f"\n{each.number} {verdict_.outcome}: {where} {each.change.function}")
            print(f"  - {each.change.before}\n  + {each.change.after}")


if __name__ == "__main__":
    main()

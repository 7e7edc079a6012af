"""Whole jobs in simulated worlds where every call that leaves the process may fail, each from a seed.

`python -m tests.simulation --seeds 1000`, and `--seed 17` tells what happens in one of them
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulation.faults import FAULTS, Met
from tests.simulation.jobs import Story, tell
from tests.simulation.kinds import Kind
from tests.simulation.shrink import shrunk
from tests.simulation.sites import sites, unmet

AT_ONCE = 10
"""Seeds that a process gets at a time."""


def told(
    first: int, seeds: int, processes: int, stop_after: int | None = None, kind: Kind | None = None
) -> Iterator[tuple[Story, Met]]:
    """The stories of so many seeds, in order.

    stop_after: so many that went wrong
    kind: of all jobs; None = it is drawn
    """
    wrong = 0
    parts = [range(start, min(start + AT_ONCE, first + seeds)) for start in range(first, first + seeds, AT_ONCE)]
    with ProcessPoolExecutor(processes) as pool:
        for stories in pool.map(partial(_part, kind=kind), parts):
            for story, met in stories:
                yield story, met
                wrong += bool(story.problems)
            if stop_after is not None and wrong >= stop_after:
                pool.shutdown(wait=False, cancel_futures=True)
                return


def _part(seeds: range, kind: Kind | None) -> list[tuple[Story, Met]]:
    found = []
    for seed in seeds:
        met = Met()
        found.append((tell(seed, met, kind=kind), met))
    return found


def coverage(met: Met) -> Iterator[str]:
    """How often each call that leaves the process was made, and has failed in each way."""
    sites: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for (operation, function, fault), count in met.items():
        sites[operation, function][fault] += count
    for (operation, function), faults in sorted(sites.items()):
        ways = FAULTS[operation]
        missing = [fault for fault in ways if not faults[fault]]
        failed = ", ".join(f"{fault} {faults[fault]}" for fault in ways if faults[fault])
        never = f"; never: {', '.join(missing)}" if missing else ""
        yield f"{operation} of {function}: {faults.total()} calls; {failed or 'has never failed'}{never}"


def met_all(met: Met) -> tuple[int, int]:
    """How many pairs of a call site and a way to fail were met, and how many there are."""
    sites = {(operation, function) for operation, function, _ in met}
    pairs = {(operation, function, fault) for operation, function in sites for fault in FAULTS[operation]}
    return sum(met[pair] > 0 for pair in pairs), len(pairs)


def main() -> int:
    """Runs what the arguments say."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first")
    parser.add_argument("--seed", type=int, help="tell what happens in this one")
    parser.add_argument("--shrink", action="store_true", help="with --seed: leave out what is not needed for a problem")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--coverage", action="store_true", help="show how often each call has failed in each way")
    parser.add_argument("--kind", choices=[kind.name for kind in Kind], help="of all jobs; else it is drawn")
    parser.add_argument("--until-wrong", action="store_true", help="end with the first world that has a problem")
    given = parser.parse_args()
    kind = Kind[given.kind] if given.kind else None
    if given.seed is not None:
        story = (
            shrunk(given.seed, tells=lambda seed, less: tell(seed, kind=kind, less=less))
            if given.shrink
            else tell(given.seed, kind=kind)
        )
        print(story.text())
        return 1 if story.problems else 0
    started, total, wrong = time.monotonic(), Met(), 0
    lives = 0
    for story, met in told(given.first, given.seeds, given.processes, 1 if given.until_wrong else None, kind):
        total.update(met)
        lives += story.lives
        if story.problems:
            wrong += 1
            print(story.text()[:5000], flush=True)
    if given.coverage:
        print(*coverage(total), sep="\n")
        missing = unmet({function for _, function, _ in total})
        print(*(f"never met: {site}" for site in missing), sep="\n")
        print(f"{len(missing)} of {len([*sites()])} functions that leave the process were not met")
    seconds = time.monotonic() - started
    pairs, of_ = met_all(total)
    failed = sum(count for (_, _, fault), count in total.items() if fault)
    places = len({met[:2] for met in total})
    print(
        f"simulation: {given.seeds} worlds from seed {given.first} on, {lives} lives of a process, {failed} faults at"
        f" {places} call sites ({pairs} of {of_} ways to fail), {wrong} with problems, {seconds:.0f} s,"
        f" {lives / seconds / given.processes:.1f} lives a second and process"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

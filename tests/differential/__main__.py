"""Relations between a query's matches and those of a changed query or stream, pair after pair.

`python -m tests.differential --pairs 100000`
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.differential.book_relations import BOOK_RELATIONS, tried_book
from tests.differential.relations import RELATIONS, Said, tried


def all_of(seed: int) -> dict[str, Said]:
    """What each relation says of one scenario."""
    said = {name: tried(seed, name) for name in RELATIONS} | {name: tried_book(seed, name) for name in BOOK_RELATIONS}
    return {name: own for name, own in said.items() if own is not None}


def hunted(first: int, pairs: int, processes: int) -> Iterator[dict[str, Said]]:
    """Scenario after scenario, until so many pairs were compared."""
    done, step = 0, 60 * processes
    with ProcessPoolExecutor(processes) as pool:
        while done < pairs:
            for said in pool.map(all_of, range(first, first + step), chunksize=10):
                done += sum(own.pairs for own in said.values())
                yield said
            first += step


def main() -> int:
    """Runs what the arguments say; prints one line of figures."""
    parser = argparse.ArgumentParser(prog="relations", description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000, help="how many at least")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    started, scenarios, wrong = time.monotonic(), 0, 0
    pairs, with_matches = Counter[str](), Counter[str]()
    for said in hunted(given.first, given.pairs, given.processes):
        scenarios += 1
        pairs.update({name: own.pairs for name, own in said.items()})
        with_matches.update(name for name, own in said.items() if own.has_matches)
        for text in (own.wrong for own in said.values() if own.wrong):
            wrong += 1
            print(text[:6000], flush=True)
    for name in (*RELATIONS, *BOOK_RELATIONS):
        print(f"{name.replace('_', ' ')}: {pairs[name]} pairs; {with_matches[name]} streams with matches")
    print(
        f"relations: {pairs.total()} pairs of {scenarios} scenarios from seed {given.first} on, {wrong} wrong,"
        f" {time.monotonic() - started:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

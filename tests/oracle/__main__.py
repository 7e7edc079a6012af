"""Random queries through Ensue and the oracle, until one differs: `python -m tests.oracle [WHAT] [--draws N] [--first SEED]`.

WHAT is `today`, an addition of `EACH`, or `all`. For a while at a time, and while an addition is built.
"""

from __future__ import annotations

import argparse
import sys

from querylang.errors import QueryErrors
from tests.oracle.random_patterns import ALL, EACH, TODAY
from tests.oracle.random_queries import Draw, random_draw
from tests.oracle.running import differences, text_of

WHAT = {"today": TODAY, **EACH, "all": ALL}


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    options.add_argument("what", nargs="?", choices=WHAT, default="today")
    options.add_argument("--draws", type=int, default=100, help="how many streams")
    options.add_argument("--together", type=int, default=20, help="how many queries read one stream")
    options.add_argument("--first", type=int, default=0, help="the first seed")
    given = options.parse_args()
    for seed in range(given.first, given.first + given.draws):
        found = first_difference(random_draw(seed, WHAT[given.what], given.together))
        if found:
            print(f"seed {seed}\n{found}")  # noqa: T201
            return 1
    print(f"{given.draws * given.together} queries, no difference")  # noqa: T201
    return 0


def first_difference(draw: Draw) -> str:
    """The text of the first difference, or of what is refused; empty: there is none."""
    try:
        found = differences(draw)
    except QueryErrors as errors:
        return f"{errors}\n{text_of(draw.queries, late=draw.late)}"
    return found[0] if found else ""


if __name__ == "__main__":
    sys.exit(main())

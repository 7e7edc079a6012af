"""`ensue replay --out PATH`: the matches to a file, however large the tables are."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ensue.commands.output import (
    print_error,
    print_idle_queries,
    print_json,
    print_line,
    print_slow_queries,
    print_text,
    print_warnings,
)
from ensue.data_options import DataOptions
from ensue.table_paths import table_paths

if TYPE_CHECKING:
    from ensue.replay_to_file import Written


def replay_to(
    file: Path,
    events: Sequence[Path],
    data: DataOptions,
    out: Path,
    *,
    until: str | None,
    flush: bool,
    as_json: bool,
) -> None:
    """Run queries over event tables and write the matches; print what became of the records."""
    from ensue.replay_to_file import replay_to_file
    from runtime.progress_line import ProgressLine

    line = ProgressLine(sys.stderr, "replay", "rows", _about_rows(events))
    try:
        written = replay_to_file(file, events, data, out, until=until, flush=flush, progress=line.update)
    finally:
        line.close()
    print_warnings(written)
    print_slow_queries(written.slow)
    if as_json:
        ledger = [] if written.ledger is None else written.ledger.to_pylist()
        print_json({"matches": written.matches, "path": str(out), "rows": written.rows, "ledger": ledger})
        return
    _print_account(written, out)
    print_idle_queries(written.idle)


def _about_rows(events: Sequence[Path]) -> int | None:
    """How many rows the files have together, about; None = unknown."""
    if not sys.stderr.isatty():
        return None
    from runtime.reading.row_counts import about_rows

    counts = [about_rows(path) for given in events for path in table_paths(given)]
    return None if None in counts else sum(filter(None, counts))


def _print_account(written: Written, out: Path) -> None:
    from ensue.rendering.account import account_text
    from ensue.rendering.text_table import shortened
    from querylang.errors import counted
    from querylang.printable import one_line

    print_line(f"{counted(written.rows, 'row')}, {counted(written.matches, 'match', 'matches')} in {out}")
    if written.ledger is not None:
        print_text(account_text(written.ledger))
    if written.outputs:
        print_error(f"{counted(written.outputs, 'output')} not written; `--format outputs` prints them")
    for source, text in written.unreadable:
        print_error(f"  {shortened(one_line(f'{source}: {text}'))}")
    more = written.discarded["malformed"] - len(written.unreadable)
    if more > 0:
        print_error(f"  and {more} more")

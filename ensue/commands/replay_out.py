"""`ensue replay --out PATH`: the matches to a file, however large the tables are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ensue.commands.output import (
    exit_if_types_are_unknown,
    exit_with_no_row_read,
    print_error,
    print_idle_queries,
    print_json,
    print_line,
    print_slow_queries,
    print_text,
    print_warnings,
)
from ensue.commands.replay_progress import ReplayProgress
from ensue.data_options import DataOptions
from ensue.event_tables.store_tables import refuse_store

if TYPE_CHECKING:
    from ensue.queries import Queries
    from ensue.replay_to_file import Written


def replay_to(
    queries: Queries,
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

    refuse_store("--out", out)
    with ReplayProgress(events) as progress:
        report = partial(progress.update, "replay")
        written = replay_to_file(queries, events, data, out, until=until, flush=flush, progress=report)
    exit_if_types_are_unknown(written.unknown_types, queries.input_types)
    print_warnings(written.warnings)
    print_slow_queries(written.slow)
    if as_json:
        ledger = [] if written.ledger is None else written.ledger.to_pylist()
        counts = {"matches": written.matches, "path": str(out), "rows": written.rows, "ledger": ledger}
        from ensue.rendering.account import waiting_object

        print_json({**counts, **waiting_object(written.waiting, written.next_due)})
    else:
        _print_account(written, out)
        print_idle_queries(written.idle)
    if written.rows and written.discarded["malformed"] == written.rows:
        exit_with_no_row_read()


def _print_account(written: Written, out: Path) -> None:
    from ensue.rendering.account import account_text, left_text
    from ensue.rendering.text_table import shortened
    from querylang.errors import counted
    from querylang.printable import one_line

    print_line(f"{counted(written.rows, 'row')}, {counted(written.matches, 'match', 'matches')} in {out}")
    if written.ledger is not None:
        print_text(account_text(written.ledger))
        for line in left_text(written.waiting, written.next_due, written.ledger):
            print_line(line)
    if written.outputs:
        print_error(f"{counted(written.outputs, 'output')} not written; `--format outputs` prints them")
    for source, text in written.unreadable:
        print_error(f"  {shortened(one_line(f'{source}: {text}'))}")
    more = written.discarded["malformed"] - len(written.unreadable)
    if more > 0:
        print_error(f"  and {more} more")

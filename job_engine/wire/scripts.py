"""The program of bounded records whose control events change the queries: known before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from job_engine.wire.epochs import Epoch, Notice
from job_engine.wire.plan_text import plan_text
from job_engine.wire.program import Program
from runtime.replay.epochs import Script


def with_script(program: Program, script: Script, records: pa.Table) -> Program:
    """A program that goes from plan to plan where control events say so.

    program: for the plan of the script
    records: those that the numbers of the script count
    """
    epochs = tuple(_epochs(script, records))
    return replace(program, epochs=epochs, notices=tuple(_notices(script)), has_changes=True)


def _epochs(script: Script, records: pa.Table) -> Iterator[Epoch]:
    for number, item in enumerate(script.epochs):
        events = tuple(event for event in script.plan.events if event.name in item.known)
        plan = replace(item.plan, events=events, stopped=() if number else item.plan.stopped)
        epoch = Epoch(number, plan_text(plan), item.begins, tuple(sorted(item.heirs.items())))
        if number and item.begins is None:
            change = records.slice(item.first - 1, 1).to_pylist()[0]
            behind = change["_place"], change["_partition"], change["_offset"]
            epoch = replace(epoch, begins=change["_arrival"], behind=behind)
        yield epoch


def _notices(script: Script) -> Iterator[Notice]:
    """Those of control events are reported at once, those of time once it has come."""
    epoch = 0
    for number, notice in enumerate(script.notices, 1):
        epoch += not notice.is_refused
        yield Notice(number, notice.place, notice.outcomes, 0 if notice.record is not None else epoch)

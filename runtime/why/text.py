"""All answers to a question, and as text for people."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill
from typing import Any

from querylang.dataclass import asdict, dataclass, field
from querylang.printable import masked, one_line
from runtime.why.answers import Awaited, Candidate, Change, EventAt, Explanation, Reason, Status, plain
from runtime.why.reasons import place_text, short_time


@dataclass(frozen=True, slots=True)
class Why:
    """All answers to a question, in the order of the queries.

    question: what was asked, in words
    remarks: what was not looked at
    """

    question: str
    answers: tuple[Explanation, ...]
    remarks: tuple[str, ...] = field(default=())

    def __iter__(self) -> Iterator[Explanation]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def __str__(self) -> str:
        """As the command prints it."""
        return why_text(self)

    def _repr_pretty_(self, printer: Any, _is_recursive: bool, /) -> None:
        """What a notebook shows; the signature is IPython's."""
        printer.text(str(self))

    def to_plain(self) -> dict[str, Any]:
        """As `--json` prints it; without secrets, as all that is printed."""
        return dict(plain(asdict(self)))


_WORDS = {
    Status.MATCHED: "matched",
    Status.NOT: "no match",
    Status.NOT_YET: "not yet",
    Status.REFUSED: "refused",
}


def why_text(why: Why) -> str:
    """All answers, one after the other."""
    parts = ["\n".join(_explanation(item)) for item in why.answers]
    return "\n\n".join([*parts, *(f"({masked(one_line(remark))})" for remark in why.remarks)])


def _explanation(item: Explanation) -> Iterator[str]:
    key = ", ".join(f"{name} {value}" for name, value in item.key.items())
    yield _line(0, f"{item.title}{', ' if key else ''}{key}: {_WORDS[item.status]}")
    if item.event is not None:
        yield _line(2, _event(item.event, with_name=False))
    if not any(item.says == candidate.reason.says for candidate in item.candidates[:1]):
        yield _line(2, item.says)
    if item.match_id is not None:
        yield _line(2, f"match {item.match_id}")
    for event in item.events:
        yield _line(4, _event(event))
    for checked in item.conditions:
        yield _line(4, f"{checked.clause}: {checked.says}")
    if item.others:
        yield _line(2, "other candidates:")
    for other in item.others:
        yield _line(4, f"{', '.join(_event(event) for event in other.events)}: {other.says}")
    if item.awaited is not None:
        yield from _awaited(item.awaited)
    if item.change is not None:
        yield from _change(item.change, 2)
    for number, candidate in enumerate(item.candidates, 1):
        yield from _candidate(number, candidate)
    for cause in item.causes:
        yield from (f"    {line}" for line in _explanation(cause))


def _event(event: EventAt, *, with_name: bool = True) -> str:
    place = place_text(event.row, event.place)
    moment = event.time or event.source_time or event.arrival or "no time"
    name = f"{event.name} = " if event.name and with_name else ""
    of = "" if place.startswith("routed") else "of "
    return f"{name}{event.text or event.event} {of}{place}, {short_time(moment)}"


def _candidate(number: int, candidate: Candidate) -> Iterator[str]:
    yield _line(2, f"{number}. {_reason(candidate.reason)}")
    for event in candidate.events:
        yield _line(7, _event(event))
    yield _line(5, "nothing else fails" if candidate.is_whole else "the search went no further here")
    if candidate.change is not None:
        yield from _change(candidate.change, 5)


def _reason(reason: Reason) -> str:
    return f"{reason.what}: {reason.says}"


def _change(change: Change, indent: int) -> Iterator[str]:
    yield _line(indent, f"the least change, which was tried: {change.before} -> {change.after}")
    if change.query:
        yield f"{' ' * (indent + 4)}the line to paste: {masked(one_line(change.text))}"  # whole: text may be in it
    if change.costs:
        yield _line(indent, f"what it costs: {change.costs}")


def _awaited(item: Awaited) -> Iterator[str]:
    reach = "" if item.due is None else f": the watermark has to reach {short_time(item.due)}"
    yield _line(2, f"it waits for {item.what}{reach}")
    yield _line(2, f"the watermark is {short_time(item.watermark or 'not known yet')}; it is held by {item.held_by}")
    latest = (
        "not before another record comes"
        if item.latest is None
        else f"when the clock reaches {short_time(item.latest)}"
    )
    yield _line(2, f"at the latest it comes {latest}")
    yield _line(2, f"what lets time advance: {item.setting}")


def _line(indent: int, text: str) -> str:
    """A line, or several where it is long."""
    shown, before = masked(one_line(text)), " " * indent
    if len(before) + len(shown) <= WIDEST:
        return before + shown
    return fill(
        shown,
        WIDEST,
        initial_indent=before,
        subsequent_indent=f"{before}   ",
        break_long_words=False,
        break_on_hyphens=False,
    )


WIDEST = 110
"""Columns of a line, unless a word is longer."""

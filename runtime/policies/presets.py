"""Presets of ordering policies: the settings of three systems as a `TimePolicy` (docs/time.md).

`SETTINGS` is the table of what can be set. Values that are out of range or contradict each other
are raised together as `OrderingError`. Lengths and moments are microseconds. Text is read in
`runtime.policies.plan_policies`. Needs only the language and the standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import Enum, auto
from typing import Any, TypeGuard

from querylang.dataclass import dataclass
from querylang.errors import InputError
from querylang.plan.constants import LONGEST
from querylang.plan.model import TimelineKind, TimePolicy
from querylang.plan.text import duration_text
from querylang.printable import one_line
from runtime.instants import EXPECTED, NEVER, is_known_time

SECOND = 1_000_000
MINUTE = 60 * SECOND
MOST_LATE = 21 * 86_400 * SECOND - SECOND
"""20 days 23:59:59 (Stream Analytics, "Configuring event ordering policies")."""

MOST_DISORDER = 10 * MINUTE - SECOND
"""9 minutes 59 seconds (same source)."""

MOST_PARTITIONS = 100_000
FOR_EVER = "-1"
NONE = "none"


class OrderingError(InputError):
    """Wrong settings.

    found: the mistakes: the setting or source that is wrong (None = the whole), and the message
    """

    def __init__(self, found: Sequence[tuple[str | None, str]]) -> None:
        super().__init__(tuple(found))
        self.found = tuple(found)

    def __str__(self) -> str:
        """One line per mistake."""
        return "\n".join(one_line(f"ordering: {message}") for _, message in self.found)


class Kind(Enum):
    """The kind of value that a setting has."""

    LENGTH = auto()  # of time, µs
    MOMENT = auto()  # µs UTC
    COUNT = auto()
    PACE = auto()  # a number of events, or a length of event time as a timedelta
    WORD = auto()  # one of `Setting.words`
    FIELDS = auto()
    TYPE = auto()  # the name of an event type
    FLAG = auto()


Value = int | timedelta | str | bool | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    name: as users write it
    kind: the kind of its value
    default: its value if it is not written
    least: the smallest length or count
    most: the largest length or count
    unlimited: the word that users write for None; None = the setting has no such word
    words: the values of a WORD
    """

    name: str
    kind: Kind
    default: Value = None
    least: int = 0
    most: int = LONGEST
    unlimited: str | None = None
    words: tuple[str, ...] = ()

    @property
    def argument(self) -> str:
        """The name of the preset's argument: that of the setting, unless Python reserves it."""
        return "imports" if self.name == "import" else self.name

    @property
    def expected(self) -> str:
        """What the value must be, in messages."""
        what = self._expected()
        meaning = " (for ever)" if self.unlimited == FOR_EVER else ""
        return what if self.unlimited is None else f"{what}, or {self.unlimited}{meaning}"

    def _expected(self) -> str:
        match self.kind:
            case Kind.LENGTH:
                return f"a length of time{self._limits(length_text)}"
            case Kind.COUNT:
                return f"a whole number{self._limits(str)}"
            case Kind.PACE:
                return "a number of events from 1, a length of event time"
            case Kind.MOMENT:
                return EXPECTED
            case Kind.WORD:
                return " or ".join(self.words)
            case Kind.FLAG:
                return "yes or no"
            case Kind.FIELDS:
                return "names of different fields, separated by commas"
            case Kind.TYPE:
                return "the name of an event type"

    def _limits(self, text: Callable[[int], str]) -> str:
        if self.least < 0:
            return " such as 2s or, with its unit, -1tick"
        return f" from {text(self.least)}" + ("" if self.most == LONGEST else f" to {text(self.most)}")

    def accepts(self, value: Any) -> bool:
        """Whether a value has the right kind and is within the limits."""
        if value is None:
            return self.unlimited is not None or self.default is None
        match self.kind:
            case Kind.LENGTH | Kind.COUNT:
                return _is_whole(value) and self.least <= value <= self.most
            case Kind.MOMENT:
                return _is_whole(value) and is_known_time(value)
            case Kind.PACE:
                return _number_of(value) is not None
            case Kind.WORD:
                return value in self.words
            case Kind.FLAG:
                return isinstance(value, bool)
            case Kind.FIELDS:
                return isinstance(value, tuple) and all(isinstance(name, str) and name for name in value)
            case Kind.TYPE:
                return isinstance(value, str) and value != ""


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _number_of(pace: Any) -> int | None:
    """The number of events or microseconds of a pace; None if the value is not a pace."""
    number = pace // timedelta(microseconds=1) if isinstance(pace, timedelta) else pace
    return number if _is_whole(number) and 1 <= number <= LONGEST else None


_EARLY = Setting("early", Kind.LENGTH, unlimited=NONE)

SETTINGS: Mapping[str, tuple[Setting, ...]] = {
    "apama": (
        Setting("leeway", Kind.LENGTH, 10 * SECOND, unlimited=FOR_EVER),
        Setting("reorder", Kind.LENGTH, 10 * SECOND, unlimited=FOR_EVER),
        _EARLY,
    ),
    "stream_analytics": (
        Setting("late", Kind.LENGTH, 5 * SECOND, most=MOST_LATE, unlimited=FOR_EVER),
        Setting("out_of_order", Kind.LENGTH, 0, most=MOST_DISORDER),
        Setting("early", Kind.LENGTH, 5 * MINUTE, unlimited=NONE),
        Setting("action", Kind.WORD, "adjust", words=("adjust", "drop")),
        Setting("over", Kind.FIELDS, ()),
        Setting("partitions", Kind.COUNT, least=1, most=MOST_PARTITIONS),
        Setting("start", Kind.MOMENT),
    ),
    "streaminsight": (
        Setting("every", Kind.PACE, 1, unlimited=NONE),
        Setting("delay", Kind.LENGTH, 0, least=-LONGEST),
        Setting("action", Kind.WORD, "drop", words=("drop", "adjust")),
        Setting("idle", Kind.LENGTH, least=1, unlimited=NONE),
        Setting("final", Kind.FLAG, False),
        Setting("import", Kind.TYPE),
        _EARLY,
    ),
}
"""The settings of each policy."""


def apama(
    *, leeway: int | None = 10 * SECOND, reorder: int | None = 10 * SECOND, early: int | None = None
) -> TimePolicy:
    """Events are ordered as the query says: `wait`, `or Heartbeat`, `@OutOfOrder`.

    leeway: the age from which an event is held at the start, µs; None = no limit
    reorder: how long such an event is held, µs; None = no limit
    early: how far a source time may be ahead of its arrival, µs; None = no limit
    """
    _check("apama", {"leeway": leeway, "reorder": reorder, "early": early})
    return TimePolicy("apama", TimelineKind.KEY, early=early, leeway=_or_never(leeway), reorder=_or_never(reorder))


def _or_never(length: int | None) -> int:
    return NEVER if length is None else length


def stream_analytics(
    *,
    late: int | None = 5 * SECOND,
    out_of_order: int = 0,
    early: int | None = 5 * MINUTE,
    action: str = "adjust",
    over: tuple[str, ...] = (),
    partitions: int | None = None,
    start: int | None = None,
) -> TimePolicy:
    """Tolerances for late and out-of-order events, with a timeline per source partition.

    late: how far a source time may be behind its arrival, µs; None = no limit
    out_of_order: how far a source time may be behind the newest one, µs
    early: how far a source time may be ahead of its arrival, µs; None = no limit
    action: what happens to other events: "adjust" or "drop"
    over: fields; each combination of their values has a timeline of its own, instead of each
        partition
    partitions: how many the source has, with those that never had a record; None = those seen
    start: when the clock of a source without records starts, µs UTC; None = at its first record
    """
    given = {"late": late, "out_of_order": out_of_order, "early": early, "action": action, "over": over}
    _check("stream_analytics", {**given, "partitions": partitions, "start": start})
    return TimePolicy(
        "stream_analytics",
        TimelineKind.SUBSTREAM if over else TimelineKind.PARTITION,
        over=over,
        early=early,
        max_delay=late,
        disorder=out_of_order,
        every=1,
        action=action,
        partitions=partitions,
        start=start,
    )


def streaminsight(
    *,
    every: int | timedelta | None = 1,
    delay: int = 0,
    action: str = "drop",
    idle: int | None = None,
    final: bool = False,
    imports: str | None = None,
    early: int | None = None,
) -> TimePolicy:
    """Time increments: at intervals, the watermark advances to an event's source time less `delay`.

    every: after so many events, or so much event time; None = only by heartbeats
    delay: how far the watermark stays behind the latest event that was received, µs; may be
        negative
    action: what happens to events below the watermark: "drop", or "adjust", which clips intervals
    idle: idle timeout after which the watermark advances past the newest event, µs; None = never
    final: whether the watermark advances beyond all times at the end of the input
    imports: the event type whose watermark is used instead of an own one; None = an own one
    early: how far a source time may be ahead of its arrival, µs; None = no limit
    """
    given: dict[str, Value] = {"every": every, "delay": delay, "action": action, "idle": idle, "final": final}
    _check("streaminsight", {**given, "import": imports, "early": early})
    is_own = imports is None
    return TimePolicy(
        "streaminsight",
        TimelineKind.EVENT_TYPE,
        early=early,
        disorder=delay,
        every=every if is_own and isinstance(every, int) else None,
        every_span=every // timedelta(microseconds=1) if is_own and isinstance(every, timedelta) else None,
        idle=idle,
        imports=imports,
        action="clip" if action == "adjust" else action,
        is_strict=True,
        is_final=final,
    )


PRESETS: Mapping[str, Callable[..., TimePolicy]] = {
    "apama": apama,
    "stream_analytics": stream_analytics,
    "streaminsight": streaminsight,
}


def _check(policy: str, values: Mapping[str, Value]) -> None:
    defaults = {setting.name: setting.default for setting in SETTINGS[policy]}
    chosen = {name: value for name, value in values.items() if not _is_same(value, defaults[name])}
    found = list(refusals(policy, chosen))
    if found:
        raise OrderingError(found)


def _is_same(value: Value, default: Value) -> bool:
    return type(value) is type(default) and value == default  # True equals 1, but is not a number of events


def refusals(policy: str, chosen: Mapping[str, Value]) -> Iterator[tuple[str | None, str]]:
    """The mistakes in the values that were chosen for a policy: the setting, and the message."""
    for setting in SETTINGS[policy]:
        if setting.name in chosen and not setting.accepts(chosen[setting.name]):
            yield setting.name, refusal(setting, _shown(setting, chosen[setting.name]))
    for setting_, other, reason in _CONTRADICTIONS:
        if setting_ in chosen and other in chosen:
            yield setting_, f"'{setting_}' and '{other}' contradict each other: {reason}"
    if "delay" in chosen and chosen.get("every", 1) is None:
        yield "delay", f"'delay' has no meaning with 'every={NONE}': only heartbeats advance time"


_CONTRADICTIONS = (
    ("every", "import", "only the imported type advances time"),
    ("delay", "import", "only the imported type advances time"),
    ("partitions", "over", "with 'over' there is a clock per value of the fields, not per partition"),
)


def refusal(setting: Setting, shown: str) -> str:
    """The message for a value that a setting does not accept; `shown` is how it was written."""
    return f"'{setting.name}' must be {setting.expected}, not {shown}"


def _shown(setting: Setting, value: Value) -> str:
    if isinstance(value, timedelta):
        return length_text(value // timedelta(microseconds=1))
    return length_text(value) if setting.kind is Kind.LENGTH and _is_whole(value) else repr(value)


def length_text(micros: int) -> str:
    """A length of either sign, as users can write it."""
    sign, size = "-" if micros < 0 else "", abs(micros)
    if 0 < size < 1000:
        return f"{sign}{size} tick{'' if size == 1 else 's'}"
    return sign + duration_text(size)

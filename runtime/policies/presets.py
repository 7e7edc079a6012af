"""The ordering policies that can be chosen for a source: three systems' settings as one record (docs/time.md).

Takes values, lengths and moments in microseconds; gives a frozen `TimePolicy`, or raises `OrderingError` with every value that
is out of range or contradicts another. `SETTINGS` is the one table of what can be set; text is read in
`runtime.policies.policy_text`. Needs the language and the standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Any, TypeGuard

from querylang.errors import InputError
from querylang.plan.constant_folding import LONGEST
from querylang.plan.model import TimelineKind, TimePolicy
from querylang.plan.text import duration_text
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
    """Settings that cannot be. `found`: of each mistake whose it is (a setting or a source; None: the whole) and its message."""

    def __init__(self, found: Sequence[tuple[str | None, str]]) -> None:
        super().__init__(tuple(found))
        self.found = tuple(found)

    def __str__(self) -> str:
        """A line each."""
        return "\n".join(f"ordering: {message}" for _, message in self.found)


class Kind(Enum):
    """What sort of value a setting has. PACE: a number of events, or a length of event time (a timedelta)."""

    LENGTH = auto()
    MOMENT = auto()
    COUNT = auto()
    PACE = auto()
    WORD = auto()
    FIELDS = auto()
    TYPE = auto()
    FLAG = auto()


Value = int | timedelta | str | bool | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `least`, `most`: of lengths and counts. `unlimited`: the word that users write for None."""

    name: str
    kind: Kind
    default: Value = None
    least: int = 0
    most: int = LONGEST
    unlimited: str | None = None
    words: tuple[str, ...] = ()

    @property
    def argument(self) -> str:
        """The preset's argument: the name, where Python allows it."""
        return "imports" if self.name == "import" else self.name

    @property
    def expected(self) -> str:
        """What the value must be, for people."""
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
                return "names of fields, each once, with commas between them"
            case Kind.TYPE:
                return "the name of an event type"

    def _limits(self, text: Callable[[int], str]) -> str:
        if self.least < 0:
            return " such as 2s or, with its unit, -1tick"
        return f" from {text(self.least)}" + ("" if self.most == LONGEST else f" to {text(self.most)}")

    def accepts(self, value: Any) -> bool:
        """Whether a value is of the kind, and within the limits."""
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
    """The events or microseconds of a pace; None if it is none."""
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
"""By policy what can be set, with the defaults; the settings are those of the documents, by these names."""


def apama(
    *, leeway: int | None = 10 * SECOND, reorder: int | None = 10 * SECOND, early: int | None = None
) -> TimePolicy:
    """What the query says (`wait`, `or Heartbeat`, `@OutOfOrder`), with the leeway for delayed events at the start; None: for ever."""
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
    """Late and out-of-order tolerance. `late` None: for ever. `over`: each of these fields' values has a clock of its own.

    `partitions`: how many the source has, those that never had a record included; `start`: when their clock begins.
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
    """Time increments: after `every` so many events, or so much event time, the newest time less `delay` is certain.

    `every` None: only punctuation in the stream. `idle`: one more after so long a quiet. `final`: one at the end of the
    input. `imports`: those of another event type instead of own ones. With `action` "adjust" what reaches beyond is clipped.
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
    return type(value) is type(default) and value == default  # True is 1, and no number of events


def refusals(policy: str, chosen: Mapping[str, Value]) -> Iterator[tuple[str | None, str]]:
    """What is wrong with the values that were chosen for a policy, by setting, each with its message."""
    for setting in SETTINGS[policy]:
        if setting.name in chosen and not setting.accepts(chosen[setting.name]):
            yield setting.name, refusal(setting, _shown(setting, chosen[setting.name]))
    for setting_, other, reason in _CONTRADICTIONS:
        if setting_ in chosen and other in chosen:
            yield setting_, f"'{setting_}' and '{other}' contradict each other: {reason}"
    if "delay" in chosen and chosen.get("every", 1) is None:
        yield "delay", f"'delay' has no meaning with 'every={NONE}': only punctuation moves time"


_CONTRADICTIONS = (
    ("every", "import", "time comes from the imported type alone"),
    ("delay", "import", "time comes from the imported type alone"),
    ("partitions", "over", "with 'over' the values of the fields have clocks, partitions have none"),
)


def refusal(setting: Setting, shown: str) -> str:
    """The message for a value that is none of a setting's; `shown` is how it is written."""
    return f"'{setting.name}' must be {setting.expected}, not {shown}"


def _shown(setting: Setting, value: Value) -> str:
    if isinstance(value, timedelta):
        return length_text(value // timedelta(microseconds=1))
    return length_text(value) if setting.kind is Kind.LENGTH and _is_whole(value) else repr(value)


def length_text(micros: int) -> str:
    """A length of either sign as it can be written."""
    sign, size = "-" if micros < 0 else "", abs(micros)
    if 0 < size < 1000:
        return f"{sign}{size} tick{'' if size == 1 else 's'}"
    return sign + duration_text(size)

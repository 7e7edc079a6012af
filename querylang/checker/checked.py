"""What the checker gives: checked queries, and the mistakes and warnings that its parts report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from querylang.dataclass import dataclass, field
from querylang.errors import Mistake, QueryError
from querylang.plan.model import EventType, QueryPlan
from querylang.source import Span


@dataclass(frozen=True, slots=True)
class Written:
    """A statement that writes: `print`, `log`, `send`, `emit` or `route`.

    - `channel`: None: it has none, or an expression gives it.
    - `event`: of what is routed to queries, the type of the event; None: not known.
    - `span`: where it is written; None: not known.
    """

    word: str
    channel: str | None = None
    has_computed_channel: bool = False
    event: str | None = None
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Checked:
    """A set of queries without a mistake, and the event types that are defined or used.

    If they were checked without schemas, the plans lack what depends on event types that nothing
    defines.

    - `written`: what each query writes, by its name, as far as the text says it.
    - `files`: by a query's name, the path of the file that it is in.
    - `is_whole`: whether something defines each event type, so that data adds nothing.
    """

    events: tuple[EventType, ...]
    queries: tuple[QueryPlan, ...]
    warnings: tuple[QueryError, ...]
    written: Mapping[str, tuple[Written, ...]]
    files: Mapping[str, str]
    is_whole: bool = False


@dataclass(slots=True)
class Diagnostics:
    """The mistakes and warnings found so far, in the order in which they were found."""

    mistakes: list[QueryError] = field(default_factory=list)
    warnings: list[QueryError] = field(default_factory=list)

    def report(self, mistake: Mistake, span: Span, **words: str | int) -> None:
        """Report a mistake; `words` fill its message."""
        self.add(QueryError.of(mistake, span, **words))

    def add(self, error: QueryError) -> None:
        """Report a mistake that is put together already."""
        self.mistakes.append(error)

    def extend(self, errors: Iterable[QueryError]) -> None:
        """Report several mistakes."""
        self.mistakes.extend(errors)

    def warn(self, mistake: Mistake, span: Span, **words: str | int) -> None:
        """Warn of what is allowed and hardly meant; `words` fill the message."""
        self.warnings.append(QueryError.of(mistake, span, **words))

    def section(self) -> MistakesSince:
        """What is reported from now on."""
        return MistakesSince(self, len(self.mistakes))


@dataclass(frozen=True, slots=True)
class MistakesSince:
    """The mistakes that are reported after the first `start`."""

    diagnostics: Diagnostics
    start: int

    @property
    def is_clean(self) -> bool:
        """Whether there are none."""
        return len(self.diagnostics.mistakes) == self.start

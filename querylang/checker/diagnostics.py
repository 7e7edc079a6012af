"""Where the parts of the checker report mistakes and warnings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from querylang.errors import Mistake, QueryError
from querylang.source import Span


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

    def section(self) -> Section:
        """What is reported from now on."""
        return Section(self, len(self.mistakes))


@dataclass(frozen=True, slots=True)
class Section:
    """The mistakes that are reported after the first `start`."""

    diagnostics: Diagnostics
    start: int

    @property
    def is_clean(self) -> bool:
        """Whether there are none."""
        return len(self.diagnostics.mistakes) == self.start

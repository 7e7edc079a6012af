"""How event tables are to be read: the settings that every way of running queries accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ensue.parameters import Parameters

if TYPE_CHECKING:
    from runtime.policies.forget_keys import ForgetKeys
    from runtime.policies.plan_policies import GivenOrderings
    from runtime.reading.column_names import ColumnNames


@dataclass(frozen=True, slots=True)
class DataOptions:
    """Column names, parameter values and ordering policies, as users give them.

    arrival: column of arrival times; None = `at`
    type: column of event types; None = `event`
    source_time: column of source times; None = `ts`
    parameters: values of the queries' parameters; None = defaults only
    ordering: ordering policies, for all sources or by source; None = as the queries say
    forget_keys: after which length without records a key is forgotten; None = never
    """

    arrival: str | None = None
    type: str | None = None
    source_time: str | None = None
    parameters: Parameters = None
    ordering: GivenOrderings = None
    forget_keys: ForgetKeys = None

    @property
    def columns(self) -> ColumnNames:
        """The names of the columns, as readers of tables want them."""
        from runtime.reading.column_names import ColumnNames

        return ColumnNames(self.arrival, self.type, self.source_time)

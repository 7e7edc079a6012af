"""Event types that earlier texts have defined, as schemas for a text that only uses them."""

from __future__ import annotations

from querylang.checker.expressions.inlining import inline_forms
from querylang.checker.names.schema import ActionSignature, EventSchema
from querylang.plan.model import EventType


def schema_of_known(event: EventType) -> EventSchema:
    """The schema of an event type of a plan, with its actions and annotations.

    Its constants are not known: a plan has only their values.
    """
    forms = inline_forms({action.name: action for action in event.actions})
    actions = tuple(
        ActionSignature(
            action.name,
            tuple((f"argument {number}", type_) for number, type_ in enumerate(action.parameters, 1)),
            action.returns,
            inline=forms.get(action.name),
        )
        for action in event.actions
    )
    return EventSchema(
        event.name,
        event.fields,
        actions=actions,
        bodies=event.actions,
        time_from=event.time_from,
        heartbeat=event.heartbeat,
        out_of_order=event.out_of_order,
    )


def other_actions(known: EventType, event: EventType) -> list[str]:
    """The actions that another definition of a known type has with other bodies.

    Not those that each text has inlined: it does not look for them when it runs.
    """
    bodies = {action.name: action for action in known.actions}
    own = {action.name: action for action in event.actions}
    inlined = inline_forms(bodies).keys() & inline_forms(own).keys()
    return [name for name, action in own.items() if bodies.get(name, action) != action and name not in inlined]

"""The queries that run, as files of a checkpoint have them: without values that may be secret.

For a value that a deployment takes from a variable or a file, the text of the deployment is
written, `${TOKEN}`, and a salted hash. A later start reads the variable again. A plan with such
values is written without them, and made again when it is read.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NotRequired, TypedDict

from querylang.changes.running import Changed, Running, RunningQuery, Version, known_value
from querylang.errors import InputError, counted
from querylang.parameters.binding import bind, converted
from querylang.plan.model import Plan, QueryPlan
from runtime.json_reader import DamagedJson
from runtime.json_shapes import Count
from spark_backend.wire.plan_text import load_alone, load_plan, plan_text, template_text

Resolve = Callable[[str], Any]
"""The value that a text with variables stands for; raises InputError if one is not set."""


_Masked = TypedDict("_Masked", {"from": str, "salt": str, "hash": str})
PlainValue = str | int | float | bool | None | _Masked
"""The shape of a value of a parameter, as `masked` gives it."""


def no_variables(written: str) -> Any:
    """Where there is no deployment."""
    raise InputError(f"nobody knows what '{written}' stands for")


def masked(values: Mapping[str, Any], hidden: Mapping[str, str]) -> dict[str, Any]:
    """The values of an instance as a file may have them."""
    return {name: _masked(value, hidden[name]) if name in hidden else value for name, value in values.items()}


def _masked(value: Any, written: str) -> Mapping[str, str]:
    if isinstance(value, Changed):
        return value.kept
    salt = secrets.token_hex(16)
    return {"from": written, "salt": salt, "hash": _hashed(value, salt)}


def _hashed(value: Any, salt: str) -> str:
    return hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), key=salt.encode(), digest_size=16).hexdigest()


def unmasked(
    values: Mapping[str, Any], template: QueryPlan, where: str, resolve: Resolve
) -> tuple[dict[str, Any], dict[str, str]]:
    """The inverse of `masked`, and what is shown in place of the values.

    where: of messages, the instance

    Raises InputError if a variable is not set.
    """
    hidden = {name: value["from"] for name, value in values.items() if isinstance(value, Mapping)}
    return {name: _unmasked(name, value, template, where, resolve) for name, value in values.items()}, hidden


def _unmasked(name: str, value: Any, template: QueryPlan, where: str, resolve: Resolve) -> Any:
    if not isinstance(value, Mapping):
        return value
    try:
        found = resolve(value["from"])
    except InputError as error:
        raise InputError(f"the value of '{name}' of {where} is not kept in the checkpoint: {error}") from None
    for parameter in template.parameters:
        if parameter.name == name:
            found = converted(parameter, found)
    return found if _hashed(found, value["salt"]) == value["hash"] else Changed(found, value)


def instance_words(query: str, instance: str) -> str:
    """An instance, as messages call it."""
    return f"instance '{instance}' of '{query}'" if instance else f"'{query}'"


@dataclass(frozen=True, slots=True)
class HiddenPlan:
    """An instance in a plan that has values which may be secret.

    place: its number among the queries of the plan
    template: the plan of its text, whose parameters have no values
    values, hidden: as of `RunningQuery`
    """

    place: int
    template: QueryPlan
    instance: str
    values: Mapping[str, Any]
    hidden: Mapping[str, str]

    @property
    def plan(self) -> QueryPlan:
        """The instance with its values."""
        values = {name: known_value(value) for name, value in self.values.items()}
        return bind(self.template, values, self.instance, self.hidden)


def hidden_plans(running: Running, plan: Plan) -> tuple[HiddenPlan, ...]:
    """Those of a plan; `running`: what it was made of, before it got the settings of the job."""
    found = []
    numbers = {query.title: (place, query) for place, query in enumerate(plan.queries)}
    for query in running.queries.values():
        for name, shown in query.hidden.items():
            for version in query.versions if shown and name in query.instances else ():
                title = version.instance(name, query.instances[name], shown).title
                if title in numbers:
                    found.append(_hidden_plan(query, version, name, *numbers[title]))
    return tuple(found)


def _hidden_plan(query: RunningQuery, version: Version, name: str, place: int, plan: QueryPlan) -> HiddenPlan:
    own = {item.name for item in version.template.parameters}
    template = replace(
        version.template,
        starts=plan.starts,
        ends=plan.ends,
        edition=plan.edition,
        forget_keys=plan.forget_keys,
        inputs=tuple(
            replace(item, policy=finished.policy, sources=finished.sources)
            for item, finished in zip(version.template.inputs, plan.inputs, strict=True)
        ),
    )
    values = {key: value for key, value in query.instances[name].items() if key in own}
    found = HiddenPlan(place, template, name, values, query.hidden[name])
    assert found.plan == plan, "a plan that is written without its values can be made again"
    return found


def plan_without(text: str, hidden: Sequence[HiddenPlan]) -> str:
    """The text of a plan without the instances that have such values."""
    places = {item.place for item in hidden}
    plan = load_plan(text)
    left = tuple(query for place, query in enumerate(plan.queries) if place not in places)
    return plan_text(replace(plan, queries=left)) if places else text


def plan_with(text: str, hidden: Sequence[HiddenPlan]) -> str:
    """The inverse of `plan_without`."""
    if not hidden:
        return text
    plan = load_plan(text)
    queries = list(plan.queries)
    for item in sorted(hidden, key=lambda item: item.place):
        queries.insert(item.place, item.plan)
    return plan_text(replace(plan, queries=tuple(queries)))


def hidden_to_plain(item: HiddenPlan) -> dict[str, Any]:
    """The instance as a file may have it."""
    return {
        "place": item.place,
        "template": plan_text(Plan((), (item.template,))),
        "instance": item.instance,
        "values": masked(item.values, item.hidden),
    }


class PlainHidden(TypedDict):
    """An instance, as `hidden_to_plain` gives it."""

    place: Count
    template: str
    instance: str
    values: dict[str, PlainValue]


def hidden_of_plain(data: PlainHidden, resolve: Resolve) -> HiddenPlan:
    """The inverse of `hidden_to_plain`; raises DamagedJson, InputError if a variable is not set."""
    templates = load_alone(data["template"]).queries
    if len(templates) != 1:
        raise DamagedJson(f"'template': expected the plan of one query, found {len(templates)}")
    template = templates[0]
    where = instance_words(template.name, data["instance"])
    values, hidden = unmasked(data["values"], template, where, resolve)
    return HiddenPlan(data["place"], template, data["instance"], values, hidden)


def running_to_plain(running: Running) -> dict[str, Any]:
    """The queries as files may hold them: without values that may be secret."""
    plain = _to_plain(
        running, [{name: _masked_values(query, name) for name in query.instances} for query in _all(running)]
    )
    return plain | {"annotated": running.is_annotated}


def is_same(one: Running, other: Running) -> bool:
    """Whether the queries and their values are the same."""
    return one == other or _compared(one) == _compared(other)  # the first is fast, and nearly always true


def has_hidden(running: Running) -> bool:
    """Whether some values may be secret."""
    return any(shown for query in _all(running) for shown in query.hidden.values())


def _compared(running: Running) -> dict[str, Any]:
    """For comparison only: it has the values."""
    plain = _to_plain(
        running, [{name: _kept_values(values) for name, values in q.instances.items()} for q in _all(running)]
    )
    return plain | {"hidden": [{name: shown for name, shown in q.hidden.items() if shown} for q in _all(running)]}


def _kept_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.kept if isinstance(value, Changed) else value for name, value in values.items()}


def _all(running: Running) -> Sequence[RunningQuery]:
    return list(running.queries.values())


def _masked_values(query: RunningQuery, name: str) -> dict[str, Any]:
    return masked(query.instances[name], query.hidden.get(name, {}))


def _to_plain(running: Running, instances: Sequence[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """`instances`: by query, what is written of the values of its instances."""
    templates: Sequence[Version] = [version for query in running.queries.values() for version in query.versions]
    plan = Plan(running.events, tuple(version.template for version in templates), running.stopped)
    return {
        "plan": template_text(plan),
        "queries": [
            {
                "name": query.name,
                "versions": [[version.starts, version.ends, version.done] for version in query.versions],
                "instances": own,
                "origin": query.origin,
                "value_origins": dict(query.value_origins),
            }
            for query, own in zip(running.queries.values(), instances, strict=True)
        ],
        "editions": dict(running.editions),
    }


class _PlainQuery(TypedDict):
    name: str
    versions: list[tuple[int | None, int | None, int | None]]
    instances: dict[str, dict[str, PlainValue]]
    origin: str
    value_origins: dict[str, str]


class PlainRunning(TypedDict):
    """The queries, as `running_to_plain` gives them."""

    plan: str
    queries: list[_PlainQuery]
    editions: dict[str, int]
    annotated: NotRequired[bool]


def running_of_plain(data: PlainRunning, resolve: Resolve = no_variables) -> Running:
    """The inverse of `running_to_plain`; raises DamagedJson.

    Raises InputError if the variable of a value is not set.
    """
    plan = load_plan(data["plan"])
    count = sum(len(item["versions"]) for item in data["queries"])
    if count != len(plan.queries) or not all(item["versions"] for item in data["queries"]):
        raise DamagedJson(f"its plan has {counted(len(plan.queries), 'text')} of queries, and its list {count}")
    templates = iter(plan.queries)
    queries = {}
    for item in data["queries"]:
        versions = tuple(Version(next(templates), *bounds) for bounds in item["versions"])
        instances: dict[str, dict[str, Any]] = {}
        hidden: dict[str, dict[str, str]] = {}
        for name, values in item["instances"].items():
            where = instance_words(item["name"], name)
            instances[name], shown = unmasked(values, versions[-1].template, where, resolve)
            hidden |= {name: shown} if shown else {}
        queries[item["name"]] = RunningQuery(versions, instances, item["origin"], item["value_origins"], hidden)
    return Running(plan.events, queries, data["editions"], plan.stopped, data.get("annotated", False))

"""Parameters: values as users write them, and the instances of queries that are made with them.

Values are given by query and instance,

    {Rising: {eu: {least: 10.0}, us: {least: 20.0}}}

or, for one instance without a name, `{Rising: {least: 10.0}}`; if only one query takes parameters,
`{least: 10.0}`. All mistakes are raised together as `FileErrors`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, DecimalException
from types import MappingProxyType
from typing import Any

from querylang.dataclass import dataclass, field, fields, is_dataclass, replace
from querylang.errors import FileErrors, InputError, counted, did_you_mean, listed
from querylang.plan import constants
from querylang.plan import model as plans
from querylang.plan.expression import NODES, Binary, Expression, Items, Kind, Literal, ParameterOf, Type, rewritten
from querylang.plan.library import LARGEST_INTEGER, SMALLEST_INTEGER
from querylang.plan.model import Input, NewBy, Parameter, Plan, QueryPlan, Stopped, Wait, Within

Path = tuple[str, ...]
"""The keys that lead to a value."""


@dataclass(frozen=True, slots=True)
class Given:
    """Values as users gave them.

    `origin`: the file, or how else a message calls it. `lines`: line by path, from 1. `hidden`: by
    path what messages show instead of a value that may be secret.
    """

    values: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may be secret
    origin: str = "parameters"
    lines: Mapping[Path, int] = field(default_factory=dict)
    hidden: Mapping[Path, str] = field(default_factory=dict)

    def line_of(self, path: Path) -> int | None:
        """The line of the value at the path, or of the innermost mapping around it."""
        return next((self.lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.lines), None)

    def hidden_in(self, path: Path) -> dict[str, str]:
        """By name, what messages show instead of the hidden values directly below the path."""
        return {keys[-1]: shown for keys, shown in self.hidden.items() if keys[:-1] == path}


NOTHING = Given()


INSTANCE_NAME = re.compile(r"[\w-][\w.-]*")
"""The name of an instance; it is part of names of folders."""


def with_instances(plan: Plan, given: Given = NOTHING, *, is_check: bool = False) -> Plan:
    """The plan with each query replaced by its instances.

    An instance has no name if no parameter needs a value. A query whose parameters need values and
    get none has no instance and is left out. An instance whose values leave a window or a wait
    without length is stopped (`Plan.stopped`), and the others run. With `is_check` that is a
    mistake like others. Raises FileErrors for values that no query takes, and if no instance is
    left.
    """
    mistakes: Mistakes = []
    wanted = _by_query(plan.queries, given.values, mistakes)
    made: list[QueryPlan] = []
    stopped: list[tuple[Path, Stopped]] = []
    for query in plan.queries:
        bind_own = Binding(query).bind
        for path, name, values in wanted.get(query.name, [] if needed(query) else [DEFAULT]):
            try:
                made.append(bind_own(values, name, given.hidden_in(path)))
            except StoppedError as error:
                stopped.append((path, Stopped(query.name, name, str(error))))
            except InstanceError as error:
                mistakes.append((path, str(error)))
    if mistakes or not made or is_check:
        mistakes += [(path, item.reason) for path, item in stopped]
    if not made and not mistakes:
        mistakes = [((), missing(query)) for query in plan.queries]
    if mistakes:
        messages = [(given.line_of(path), message) for path, message in mistakes]
        raise FileErrors(given.origin, sorted(messages, key=lambda mistake: mistake[0] or 0))
    return replace(plan, queries=tuple(made), stopped=tuple(item for _, item in stopped))


def hidden_values(plan: Plan, given: Given) -> dict[str, dict[str, dict[str, str]]]:
    """By query, instance and parameter, what is shown in place of values that may be secret."""
    hidden: dict[str, dict[str, dict[str, str]]] = {}
    for query, instances in _by_query(plan.queries, given.values, []).items():
        for path, name, _ in instances:
            shown = given.hidden_in(path)
            if shown:
                hidden.setdefault(query, {})[name] = shown
    return hidden


def needed(query: QueryPlan) -> list[str]:
    """The parameters without a default."""
    return [parameter.name for parameter in query.parameters if parameter.default is None]


def missing(query: QueryPlan) -> str:
    """The message that a query has no instance."""
    names = needed(query)
    return f"query '{query.name}' has no instance; {_quoted(names)} {'needs' if len(names) == 1 else 'need'} a value"


Mistakes = list[tuple[Path, str]]
"""The path of each wrong value, and what is wrong with it."""

Instance = tuple[Path, str, Mapping[str, Any]]
"""Its path, its name, its values."""

DEFAULT: Instance = ((), "", {})


def _by_query(queries: Sequence[QueryPlan], values: Mapping[str, Any], mistakes: Mistakes) -> dict[str, list[Instance]]:
    if not values:
        return {}
    taking = [query.name for query in queries if query.parameters]
    if not taking:
        mistakes.append(((), "these queries have no parameters"))
        return {}
    if not any(isinstance(value, Mapping) for value in values.values()):
        if len(taking) == 1:
            return {taking[0]: [((), "", values)]}
        mistakes.append(((), f"name the query: {_quoted(taking)} take parameters"))
        return {}
    instances = {}
    for name, value in values.items():
        if name in taking:
            instances[name] = _instances(name, value, mistakes)
        else:
            mistakes.append(((name,), _unknown_query(name, taking, queries)))
    return instances


def _instances(query: str, value: Any, mistakes: Mistakes) -> list[Instance]:
    if not isinstance(value, Mapping):
        mistakes.append(((query,), f"'{query}' is a query: its parameters are a mapping of names to values"))
        return []
    if not any(isinstance(inner, Mapping) for inner in value.values()):
        return [((query,), "", value)]
    instances: list[Instance] = []
    for name, inner in value.items():
        path = (query, str(name))
        if not isinstance(inner, Mapping):
            mistakes.append((path, f"'{name}' must be an instance with values, as those beside it are"))
        elif not INSTANCE_NAME.fullmatch(str(name)):
            mistakes.append((path, f"'{name}' is not a name of an instance; use letters, digits, _, - and dots"))
        else:
            instances.append((path, str(name), inner))
    return instances


def _unknown_query(name: str, taking: Sequence[str], queries: Sequence[QueryPlan]) -> str:
    if name in {query.name for query in queries}:
        return f"query '{name}' has no parameters"
    return f"unknown query '{name}'{did_you_mean(str(name), taking)}"


def _quoted(names: Sequence[str]) -> str:
    return listed(f"'{name}'" for name in names)


# One instance: a query's template, and values by name. Values are Python, YAML or JSON values. In
# the instance no parameter is left, and all durations are numbers.

NONE_HIDDEN: Mapping[str, str] = MappingProxyType({})


class InstanceError(InputError):
    """A value that is missing, unknown, of a wrong type, or makes a window or wait impossible."""


class StoppedError(InstanceError):
    """An instance with good values that together leave a window or a wait without length.

    Apama stops such an instance and no other: see `querylang.plan.model.Stopped`.
    """


def instances_of(query: QueryPlan) -> tuple[QueryPlan, ...]:
    """The instances of a query without given values: one if each parameter has a default.

    Raises InstanceError if the defaults make a window or a wait impossible.
    """
    is_complete = all(parameter.default is not None for parameter in query.parameters)
    return (bind(query, {}),) if is_complete else ()


def bind(
    query: QueryPlan, values: Mapping[str, Any], instance: str = "", hidden: Mapping[str, str] = NONE_HIDDEN
) -> QueryPlan:
    """The instance of that name; the values become its defaults.

    hidden: by parameter, what messages show instead of a value that may be secret

    Raises InstanceError.
    """
    return Binding(query).bind(values, instance, hidden)


class Binding:
    """The instances of a query; what several of them have alike is made once."""

    def __init__(self, query: QueryPlan) -> None:
        self._query = query
        self._names = [parameter.name for parameter in query.parameters]
        self._count = 0
        self._free: frozenset[str] = frozenset()
        self._parts: dict[tuple[str, ...], tuple[QueryPlan, constants.Hole | None]] = {}

    def bind(self, values: Mapping[str, Any], instance: str = "", hidden: Mapping[str, str] = NONE_HIDDEN) -> QueryPlan:
        """As the function of that name."""
        query = self._query
        where = f"query '{query.name}'" + (f", instance '{instance}'" if instance else "")
        for name in values:
            if name not in self._names:
                raise InstanceError(f"{where}: {_unknown(str(name), self._names)}")
        literals = {item.name: _literal(item, values, where, hidden.get(item.name)) for item in query.parameters}
        parameters = tuple([replace(item, default=literals[item.name]) for item in query.parameters])
        bound = self._bound(literals, where, hidden)
        made = replace(bound, parameters=parameters, instance=instance)
        return query if made == query else made  # who has seen one of them knows the other

    def _bound(self, literals: Mapping[str, Literal | Items], where: str, hidden: Mapping[str, str]) -> QueryPlan:
        """The query with values, whose durations are numbers."""
        self._count += 1
        if self._count == _FEWEST and self._names:
            self._free = constants.free_parameters(self._query)
        if not self._free:
            return _with_numbers(_with_values(self._query, literals) if literals else self._query, where, hidden)
        others = {name: literal for name, literal in literals.items() if name not in self._free}
        key = tuple(map(repr, others.values()))
        if key not in self._parts:
            bound = _with_numbers(_with_values(self._query, others), where, hidden)
            self._parts[key] = bound, constants.part_with_parameters(bound)
        bound, part = self._parts[key]
        made: QueryPlan = bound if part is None else part.filled(literals)
        return made


_FEWEST = 3
"""Instances of a query, from which on it is found out what they have alike."""


def _unknown(name: str, known: list[str]) -> str:
    hint = did_you_mean(name, known) or f"; it has {counted(len(known), 'parameter', zero='no')}"
    return f"unknown parameter '{name}'{hint}"


def converted(parameter: Parameter, given: Any) -> Any:
    """A given value as the type of a parameter has it; as it is if it is not of that type."""
    try:
        return _plain(parameter.type, given)
    except (TypeError, ValueError, OverflowError, DecimalException):
        return given


def _plain(type_: Type, given: Any) -> Any:
    """A given value as its type has it; TypeError or ValueError if it is of another type."""
    if type_.kind is not Kind.SEQUENCE:
        return _CONVERSIONS[type_](given)
    if not isinstance(given, list | tuple):
        raise TypeError
    found = []
    for number, item in enumerate(given, start=1):
        try:
            found.append(_CONVERSIONS[type_.of[0]](item))
        except (TypeError, DecimalException):
            raise ValueError(f"its value {number} is {_found(item)}") from None
    return found


def _expression(type_: Type, value: Any) -> Literal | Items:
    if type_.kind is not Kind.SEQUENCE:
        return Literal(type_, value)
    return Items(type_, tuple(Literal(type_.of[0], item) for item in value))


def _literal(parameter: Parameter, values: Mapping[str, Any], where: str, hidden: str | None) -> Literal | Items:
    if parameter.name not in values:
        if parameter.default is None:
            raise InstanceError(f"{where}: parameter '{parameter.name}' has no value; it is {parameter.type}")
        return parameter.default
    given = values[parameter.name]
    try:
        return _expression(parameter.type, _plain(parameter.type, given))
    except (TypeError, ValueError, OverflowError, DecimalException) as error:
        if hidden is not None:
            reason = f"{parameter.type}, not what '{hidden}' stands for"
            raise InstanceError(f"{where}: parameter '{parameter.name}' must be {reason}") from None
        found = _found(given)
        reason = f"{parameter.type}, not {found}" if isinstance(error, TypeError) else f"{parameter.type}: {error}"
        raise InstanceError(f"{where}: parameter '{parameter.name}' must be {reason}") from None


def _boolean(given: Any) -> bool:
    if not isinstance(given, bool):
        raise TypeError
    return given


def _integer(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError
    if not SMALLEST_INTEGER <= given <= LARGEST_INTEGER:
        raise ValueError(f"{given} does not fit 64 bits")
    return given


def _float(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError
    try:
        return float(given)
    except OverflowError:
        raise ValueError("this number does not fit a float") from None


def _decimal(given: Any) -> Decimal:
    """Numbers as they are written: 0.1 is a tenth.

    Text may be a decimal literal of queries: `1.5d`.
    """
    if isinstance(given, bool) or not isinstance(given, int | float | str | Decimal):
        raise TypeError
    text = given.strip().removesuffix("d") if isinstance(given, str) else str(given)
    try:
        return constants.decimal_of(Decimal(text))
    except DecimalException:
        raise TypeError from None
    except constants.NoValueError as error:
        raise ValueError(str(error)) from None


def _string(given: Any) -> str:
    if not isinstance(given, str):
        raise TypeError
    return given


_CONVERSIONS: dict[Type, Callable[[Any], Any]] = {
    Type.BOOLEAN: _boolean,
    Type.INTEGER: _integer,
    Type.FLOAT: _float,
    Type.DECIMAL: _decimal,
    Type.STRING: _string,
}
"""Converts a given value to each type of parameter; TypeError if it is of another type."""

_WORDS = {bool: "boolean", int: "integer", float: "float", str: "string", Decimal: "decimal", type(None): "nothing"}


def _found(given: Any) -> str:
    """The given value, as a message calls it."""
    word = _WORDS.get(type(given))
    if word is None:
        return f"a {type(given).__name__}"
    return word if given is None else f"the {word} {given!r}"


def _with_values(part: Any, literals: Mapping[str, Literal | Items]) -> Any:
    """A part of a plan with values instead of parameters, and constant comparisons evaluated."""

    def change(node: Expression) -> Expression:
        return _decided(literals.get(node.name, node) if isinstance(node, ParameterOf) else node)

    def inner(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(inner(item) for item in value)
        if isinstance(value, NODES):
            return rewritten(value, change)  # type: ignore[arg-type]  # NODES are the kinds of expressions
        if is_dataclass(value) and not isinstance(value, Type):
            return replace(value, **{item.name: inner(getattr(value, item.name)) for item in fields(value)})  # type: ignore[type-var]
        return value

    return inner(part)


def _decided(node: Expression) -> Expression:
    """A comparison of constants as its result; `and` and `or` with a constant simplified."""
    match node:
        case Binary(operator="and", left=Literal(value=bool(left)), right=right):
            return right if left else node.left
        case Binary(operator="or", left=Literal(value=bool(left)), right=right):
            return node.left if left else right
        case Binary(operator="and", right=Literal(value=True)) | Binary(operator="or", right=Literal(value=False)):
            return node.left
        case Binary(type=Type.BOOLEAN, left=Literal(), right=Literal()) if node.operator not in ("and", "or", "xor"):
            return Literal(Type.BOOLEAN, bool(constants.value_of(node)))
        case _:
            return node


def _with_numbers(query: QueryPlan, where: str, hidden: Mapping[str, str]) -> QueryPlan:
    """All durations and counts as numbers."""
    shown = f"is not possible with what {listed(repr(text) for text in hidden.values())} stands for"

    def number(value: int | Expression | None, what: str, read: Callable[[Expression], int]) -> Any:
        if value is None or isinstance(value, int):
            return value
        assert constants.is_constant(value), "durations are over parameters only"
        try:
            return read(value)
        except constants.WrongNumberError as error:
            raise StoppedError(f"{where}: {what} {shown if hidden else error}") from None
        except constants.NoValueError as error:
            raise StoppedError(f"{where}: {what} {shown if hidden else f'has no value: {error}'}") from None

    def of_input(item: Input) -> Input:
        of = f"of '{item.event}'"
        return replace(
            item,
            within=number(item.within, f"`within` {of}", constants.microseconds_of),
            retain=number(item.retain, f"`retain` {of}", constants.count_of),
            wait=number(item.wait, f"`wait` {of}", constants.microseconds_of),
            new=of_new(item.new, of),
        )

    def of_new(new: NewBy | None, of: str) -> NewBy | None:
        return new and replace(new, within=number(new.within, f"`within` of `new by` {of}", constants.microseconds_of))

    def of_wait(wait: Wait | None, place: str) -> Wait | None:
        return wait and replace(
            wait, duration=number(wait.duration, f"the `wait` {place} of the pattern", constants.microseconds_of)
        )

    def of_condition(condition: plans.Condition) -> plans.Condition:
        if isinstance(condition, plans.Where | plans.Without):
            return condition
        what = "`within` of the pattern" if isinstance(condition, Within) else "a `wait` between steps of the pattern"
        return replace(condition, duration=number(condition.duration, what, constants.microseconds_of))

    return replace(
        query,
        inputs=tuple(of_input(item) for item in query.inputs),
        conditions=tuple(of_condition(item) for item in query.conditions),
        at_most=query.at_most
        and replace(
            query.at_most,
            count=number(query.at_most.count, "the number of `at most`", constants.count_of),
            duration=number(query.at_most.duration, "the time of `at most`", constants.microseconds_of),
        ),
        leading=of_wait(query.leading, "at the beginning"),
        trailing=of_wait(query.trailing, "at the end"),
    )

"""Plans as they are sent to workers: as JSON text, and what their tables hold as files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache, partial
from threading import Lock
from typing import Any, TypeVar

from job_engine.arrow_files import mapped_bytes
from job_engine.place import local_copy, place_of
from querylang.dataclass import dataclass, replace
from querylang.errors import InputError
from querylang.plan import model as plans
from querylang.plan.constants import Constant, Template, template_with
from querylang.plan.encoding import WrongPart
from querylang.plan.lookups import lookups_in
from querylang.plan.model import ACCEPT, EventType, Plan, QueryPlan, Table
from runtime.column_types import Integers
from runtime.interpreter import Value
from runtime.json_reader import DamagedJson, json_of_text, refuse_deep
from runtime.lookup_tables import LookupTable, definition_of, tables_of_plan, with_content, with_read_places

# Plans as JSON text: the form in which they are sent to workers and fingerprinted.
#
# A job has plans that differ in few of thousands of queries: one per change. So a process writes
# and reads each query once, whatever plans it is in.

Part = TypeVar("Part")


def plan_text(plan: Plan) -> str:
    """The plan as JSON text; equal plans have equal texts.

    Without annotations of event types, which no engine needs.
    """
    plan = plan.without_annotations()
    text = template_text(plan)
    with _LOCK:
        _MADE[text] = plan
        while len(_MADE) > MOST_MADE:
            del _MADE[next(iter(_MADE))]
    return text


def template_text(plan: Plan) -> str:
    """A plan as JSON text, with all that compiling more texts for it needs."""
    rest = plans.to_dict(Plan(plan.events, (), plan.stopped))
    written = [_query_text(query) for query in plan.queries]
    version = max([rest["version"], *(version for _, version in written)])
    events, stopped = _json(rest["plan"]["events"]), _json(rest["plan"]["stopped"])
    return f"{_EVENTS}{events}{_QUERIES}{','.join(text for text, _ in written)}{_STOPPED}{stopped}{_VERSION}{version}}}"


def fingerprint(text: str) -> str:
    """A plan's text hashed to 16 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=64)
def load_plan(text: str) -> Plan:
    """The inverse of `plan_text`; parsed once per process, and not where the text was just made."""
    with _LOCK:
        made = _MADE.pop(text, None)
    return made if made is not None else with_read_places(_checked(text))


def load_alone(text: str) -> Plan:
    """The plan of queries without their event types, which another plan has; raises DamagedJson."""
    return _checked(text, are_alone=True)


def _checked(text: str, *, are_alone: bool = False) -> Plan:
    """The plan of a text that may come from a damaged file; raises DamagedJson.

    are_alone: its queries are without their event types
    """
    try:
        refuse_deep(text, _DEEPEST)
        plan = _read(text)
    except plans.PlanVersionError:
        raise
    except (DamagedJson, WrongPart) as error:
        raise DamagedJson(f"its plan is damaged: {error}") from error
    except RecursionError as error:
        raise DamagedJson("its plan is damaged: it is nested too deep") from error
    for number, query in enumerate(plan.queries):
        for field in _dangling(query, None if are_alone else {event.name for event in plan.events}):
            raise DamagedJson(f"its plan is damaged: 'queries[{number}].{field}' names something that is not there")
    return plan


def _dangling(query: QueryPlan, events: Collection[str] | None) -> Iterator[str]:
    """The fields of a query that name what is not there: event types, or numbers of something.

    events: the names of those that there are; None = not known
    """
    if events is not None:
        yield from (f"inputs[{at}].event" for at, item in enumerate(query.inputs) if item.event not in events)
    inputs, terms, states = range(len(query.inputs)), range(len(query.terms)), query.automaton.states
    yield from (f"terms[{at}].input" for at, term in enumerate(query.terms) if term.input not in inputs)
    conditions, targets = range(len(query.conditions)), range(ACCEPT, len(states))
    for state, place in ((state, f"automaton.states[{at}]") for at, state in enumerate(states)):
        if not all(check in conditions for check in state.accepts or ()):
            yield f"{place}.accepts"
        for at, item in enumerate(state.transitions):
            if item.input not in inputs:
                yield f"{place}.transitions[{at}].input"
            if not all(number in inputs for number in item.also):
                yield f"{place}.transitions[{at}].also"
            if item.target not in targets:
                yield f"{place}.transitions[{at}].target"
            if not all(term in terms for term in item.binds):
                yield f"{place}.transitions[{at}].binds"
            if not all(check in conditions for check in item.checks):
                yield f"{place}.transitions[{at}].checks"


_DEEPEST = 800
"""How deep the parts of a plan may be nested, which is twice as deep as what they stand for."""


MOST_MADE = 4
"""A plan of a thousand queries has some megabytes."""

MOST_QUERIES = 20_000
"""So many queries are kept with their texts."""

_LOCK = Lock()

_MADE: dict[str, Plan] = {}
"""The plans whose texts were made last: a driver soon asks for what it has just written."""

_WRITTEN: dict[int, tuple[QueryPlan, str, int]] = {}
"""By the identity of a query: the query, its text, and the version of a plan of it alone."""

_PARTS_READ: dict[bytes, Any] = {}
"""By the hash of a text: the query, or the event types, that it stands for."""

_EVENTS = '{"plan":{"events":'
_QUERIES = ',"is":"Plan","queries":['
_STOPPED = '],"stopped":'
_VERSION = '},"version":'
"""What is between the parts of a plan's text."""

_DECODER = json.JSONDecoder()


def _json(plain: Any) -> str:
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def _query_text(query: QueryPlan) -> tuple[str, int]:
    known = _WRITTEN.get(id(query))
    if known is None or known[0] is not query:
        alone = plans.to_dict(Plan((), (query,)))
        known = query, _json(alone["plan"]["queries"][0]), alone["version"]
        _keep(_WRITTEN, id(query), known)
    return known[1:]


def _keep(kept: dict[Any, Part], key: Any, value: Part) -> None:
    with _LOCK:
        kept[key] = value
        while len(kept) > MOST_QUERIES:
            del kept[next(iter(kept))]


def _read(text: str) -> Plan:
    """The plan of a text; what was read before is not read again."""
    try:
        events, queries, rest = _parts(text)
    except (ValueError, IndexError, DamagedJson):  # damaged, or laid out in another way
        return plans.from_dict(json_of_text(text, dict[str, Any], deepest=_DEEPEST))
    stopped = plans.from_dict(rest).stopped
    version = rest["version"]
    read = tuple(_query_of(number, *query, version) for number, query in enumerate(queries))
    return Plan(_events_of(*events, version), read, stopped)


_Part = tuple[str, Any]
"""A text of JSON, and what it stands for."""


def _parts(text: str) -> tuple[_Part, list[_Part], dict[str, Any]]:
    """The event types and the queries of a plan's text, and the plan without them.

    Raises ValueError or IndexError for a text that is laid out in another way.
    """
    events, at = _DECODER.raw_decode(text, len(_EVENTS))
    queries = []
    begin = at + len(_QUERIES)
    if text[: len(_EVENTS)] != _EVENTS or text[at:begin] != _QUERIES:
        raise ValueError("it does not begin as plans do")
    place = begin
    while text[place] != "]":
        query, end = _DECODER.raw_decode(text, place)
        queries.append((text[place:end], query))
        place = end + (text[end] == ",")
    rest = json_of_text(f"{_EVENTS}[]{_QUERIES}{text[place:]}", dict[str, Any], deepest=_DEEPEST)
    return (text[len(_EVENTS) : at], events), queries, rest


def _events_of(text: str, plain: Any, version: int) -> tuple[EventType, ...]:
    key = _hash(text)
    known = _PARTS_READ.get(key)
    if known is None:
        known = plans.from_dict(_alone(version, events=plain)).events
        _keep(_PARTS_READ, key, known)
    return known


def _query_of(number: int, text: str, plain: Any, version: int) -> QueryPlan:
    key = _hash(text)
    known = _PARTS_READ.get(key)
    if known is None:
        try:
            known = _like_others(text, plain, version)
        except WrongPart as wrong:
            wrong.steps[-2] = number  # it was the only one, and is one of many
            raise
        _keep(_PARTS_READ, key, known)
        if version == plans.FIRST_VERSION:  # it is written as it was
            _keep(_WRITTEN, id(known), (known, text, version))
    return known


def _query_of_plain(plain: Any, version: int) -> QueryPlan:
    (query,) = plans.from_dict(_alone(version, queries=[plain])).queries
    return query


# Most queries of a book differ from others in constants and their name. So the second one of a form
# is read with marks in place of its constants, which show where these are. All others are made of
# that. They have all parts in common in which there is no constant.

_CONSTANT = re.compile(
    r'("is":"Literal","type":{"is":"type","value":)'
    r'(?:("integer"},"value":)(-?[0-9]+)(?=})|("string"},"value":)("(?:[^"\\]|\\.)*")(?=})'
    r'|("float"},"value":{"is":"float","value":)"(-?[0-9.e+-]+)"(?=}}))'
)
_NAME = re.compile(r'(?<=,"name":)("(?:[^"\\]|\\.)*")(?=,"nulls_fail":)')
_MARK = 7_000_000_000_000
"""Marks are numbers from here on, and texts with such a number."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A query that was read, with what is free in its text.

    template: of its form; None = it is the first, or its form is not that of others
    """

    query: QueryPlan
    values: list[Constant]
    template: Template | None = None
    is_alone: bool = False


_FORMS: dict[bytes, _Read] = {}
"""By the hash of a form, a query of it."""


def _like_others(text: str, plain: Any, version: int) -> QueryPlan:
    """A query from its text; raises WrongPart."""
    values: list[Constant] = []
    names = _NAME.findall(text)
    form = _hash(f"{version} {_NAME.sub('', _CONSTANT.sub(partial(_value_of, values), text))}")
    known = _FORMS.get(form) if len(names) == 1 else None
    if known is not None and known.template is None and not known.is_alone:
        known = _with_template(text, known, version)
        _keep(_FORMS, form, known)
    if known is not None and known.template is not None:
        return known.template.filled(json.loads(names[0]), values)
    query = _query_of_plain(plain, version)
    if known is None:
        _keep(_FORMS, form, _Read(query, values))
    return query


def _value_of(values: list[Constant], found: re.Match[str]) -> str:
    """Adds the value of a constant; gives what is left of its text."""
    before, integer, number, string, word, float_, digits = found.groups()
    values.append(int(number) if integer else json.loads(word) if string else float(digits))
    return f"{before}{integer or string or float_}"


def _with_template(text: str, known: _Read, version: int) -> _Read:
    """A form with its template, made of the text of any query that has it."""
    marks: list[Constant] = []

    def marked(found: re.Match[str]) -> str:
        before, integer, _, string, _, float_, _ = found.groups()
        mark = _MARK + len(marks) * 1000
        marks.append(mark if integer else str(mark) if string else mark + 0.5)
        return f"{before}{integer or string or float_}{mark if integer else json.dumps(str(marks[-1]))}"

    template = template_with(_query_of_plain(json.loads(_CONSTANT.sub(marked, text)), version), marks)
    is_it = template.filled(known.query.name, known.values) == known.query
    return replace(known, template=template if is_it else None, is_alone=not is_it)


def _alone(version: int, *, events: Any = None, queries: Any = None) -> dict[str, Any]:
    plan = {"is": "Plan", "events": events or [], "queries": queries or [], "stopped": []}
    return {"version": version, "plan": plan}


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


# What the tables beside the stream of a job hold: files in its checkpoint, read once a process.

KeptTables = tuple[tuple[str, str], ...]
"""By definition of a table (`definition_of`), the file with its content, sorted."""

_NEWEST: dict[str, tuple[str, LookupTable]] = {}
"""By definition, the file that was asked for last, and its content, which plans do not keep."""

_READING = Lock()


@dataclass(frozen=True, slots=True)
class KeptContent:
    """The content of a table, which is read when something is looked up in it."""

    table: Table
    file: str

    def row_of(self, keys: Sequence[Value], moment: int) -> int:
        """As of `TableContent`."""
        return self._held().row_of(keys, moment)

    def cell(self, field: str, row: int) -> Value:
        """As of `TableContent`."""
        return self._held().cell(field, row)

    def rows_of(self, keys: Sequence[Any], moments: Integers) -> Integers:
        """As of `TableContent`."""
        return self._held().rows_of(keys, moments)

    def column(self, field: str) -> Any:
        """As of `TableContent`."""
        return self._held().column(field)

    def _held(self) -> LookupTable:
        return read_kept(self.table, self.file)


def read_kept(table: Table, file: str) -> LookupTable:
    """The content of a table in a checkpoint; raises InputError if it cannot be read."""
    definition = definition_of(table)
    with _READING:
        found = _NEWEST.get(definition)
        if found is None or found[0] != file:
            found = _NEWEST[definition] = file, _content_of(table, file)
    return found[1]


def _content_of(table: Table, file: str) -> LookupTable:
    try:
        with local_copy(place_of(file)) as here, mapped_bytes(here) as source:
            return LookupTable.of_file(table, source)
    except (OSError, ValueError) as error:
        raise InputError(
            f"table '{table.name}': {file} cannot be read: {error}; restore it from a copy of the checkpoint"
        ) from error


def with_kept(plan: Plan, tables: KeptTables) -> Plan:
    """The plan whose tables have the content that a checkpoint has of them."""
    wanted = tables_of_plan(plan) if tables else []
    files = dict(tables)
    found = {table: KeptContent(table, files[of]) for table in wanted if (of := definition_of(table)) in files}
    return with_content(plan, found) if found else plan


@lru_cache(maxsize=64)
def plan_with_kept(text: str, tables: KeptTables) -> Plan:
    """The plan of a text, as of `with_kept`."""
    return with_kept(load_plan(text), tables)


def without_looking(plan: Plan) -> Plan:
    """The plan without filters that look something up.

    What they say depends on when a record arrives, which is known where it is processed.
    """
    if not any(query.tables for query in plan.queries):
        return plan
    queries = [
        replace(
            query,
            inputs=tuple(replace(item, filter=None) if any(lookups_in(item.filter)) else item for item in query.inputs),
        )
        if query.tables
        else query
        for query in plan.queries
    ]
    return replace(plan, queries=tuple(queries))

"""Plans as they are sent to workers: as JSON text, and what their tables hold as files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from threading import Lock
from typing import Any, TypedDict, TypeVar

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
from runtime.json_reader import DamagedJson, json_of_text, packed, refuse_deep, unpacked
from runtime.lookup_tables import LookupTable, definition_of, tables_of_plan, with_content, with_read_places

# Plans as JSON text: the form in which they are sent to workers and fingerprinted.
#
# A job has plans that differ in few of thousands of queries: one per change. So a process writes
# and reads each query once, whatever plans it is in.
#
# Most queries of a book differ from others in constants and their name. The text of a query with
# marks in place of these is its *form*, and a query of a form is a *row*: its name and constants. A
# plan of many queries is packed: forms and rows, compressed. So its text has some bytes per query.

Part = TypeVar("Part")

MANY = 64
"""A plan of so many queries is packed."""


def plan_text(plan: Plan) -> str:
    """The plan as JSON text; equal plans have equal texts.

    Without annotations of event types, which no engine needs.
    """
    known = _TEXTS.get(id(plan))
    plain = plan.without_annotations()
    text = known[1] if known is not None and known[0] is plan else template_text(plain)
    _keep(_TEXTS, id(plan), (plan, text), MOST_MADE)
    _keep(_MADE, text, plain, MOST_MADE)
    return text


def template_text(plan: Plan) -> str:
    """A plan as JSON text, with all that compiling more texts for it needs."""
    rest = plans.to_dict(Plan(plan.events, (), plan.stopped))
    rows = [_row_of(query) for query in plan.queries]
    version = max([rest["version"], *(row.form.version for row in rows)])
    events, stopped = _json(rest["plan"]["events"]), _json(rest["plan"]["stopped"])
    if len(rows) >= MANY:
        return f"{_EVENTS}{events}{_PACKED}{_packed(rows)}{_BEHIND}{stopped}{_VERSION}{version}}}"
    queries = ",".join(row.text() for row in rows)
    return f"{_EVENTS}{events}{_QUERIES}{queries}]{_STOPPED}{stopped}{_VERSION}{version}}}"


@lru_cache(maxsize=4)
def fingerprint(*texts: str) -> str:
    """The texts of plans hashed to 16 hexadecimal digits, as if none were packed."""
    return hashlib.sha256("\n".join(map(_unpacked, texts)).encode()).hexdigest()[:16]


def is_packed(text: str) -> bool:
    """Whether a plan's text is packed, which older releases do not read."""
    return text.find(_PACKED) >= 0


@lru_cache(maxsize=64)
def load_plan(text: str) -> Plan:
    """The inverse of `plan_text`; parsed once per process, and not where the text was just made."""
    with _LOCK:
        made = _MADE.pop(text, None)
    return made if made is not None else with_read_places(_checked(text))


def load_written(text: str) -> Plan:
    """As `load_plan`, of a text that `plan_text` of this release has made: it is not made again."""
    plan = load_plan(text)
    _keep(_TEXTS, id(plan), (plan, text), MOST_MADE)
    return plan


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
"""So many plans are kept with their texts."""

MOST_QUERIES = 100_000
"""So many queries are kept with their rows: a job has each as its text says it, and as it runs."""

_LOCK = Lock()

_MADE: dict[str, Plan] = {}
"""The plans whose texts were made last: a driver soon asks for what it has just written."""

_TEXTS: dict[int, tuple[Plan, str]] = {}
"""By the identity of a plan, which is kept beside, its text; those that were asked for last."""

_WRITTEN: dict[int, tuple[QueryPlan, _Row]] = {}
"""By the identity of a query, which is kept beside, its row."""

_PARTS_READ: dict[Any, Any] = {}
"""By a row the query, and by the hash of a text the event types, that it stands for."""

_FORMS: dict[tuple[int, str], _Form] = {}
"""By version and text."""

_EVENTS = '{"plan":{"events":'
_QUERIES = ',"is":"Plan","queries":['
_PACKED = ',"is":"Plan","packed":"'
_STOPPED = ',"stopped":'
_BEHIND = f'"{_STOPPED}'
_VERSION = '},"version":'
"""What is between the parts of a plan's text."""

_DECODER = json.JSONDecoder()


def _json(plain: Any) -> str:
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def _keep(kept: dict[Any, Part], key: Any, value: Part, most: int = MOST_QUERIES) -> None:
    with _LOCK:
        kept[key] = value
        while len(kept) > most:
            del kept[next(iter(kept))]


# Queries as rows.

_FREE = re.compile(
    r'"is":"Literal","type":{"is":"type","value":(?:"integer"},"value":(?P<i>-?[0-9]+)(?=})'
    r'|"string"},"value":(?P<s>"(?:[^"\\]|\\.)*")(?=})|"float"},"value":{"is":"float","value":"(?P<f>-?[0-9.e+-]+)"(?=}}))'
    r'|,"name":(?P<n>"(?:[^"\\]|\\.)*")(?=,"nulls_fail":)'
)
"""What is free in the text of a query: integers, strings, floats without quotes, and its name."""

_MARKED = re.compile("\0([isfn])")
"""A mark: the kind of what is free there. No JSON text has its first character."""

_MARK = 7_000_000_000_000
"""Constants that stand for others are numbers from here on, and texts with such a number."""


class _Form:
    """A text of queries with marks in place of what is free.

    version: of the plan of one of its queries
    query, values: the first one that was read, with its constants; None = none was
    template: what others are made of; None = none was asked for, or the form `is_alone`: what is
        made of it is not what is written
    """

    __slots__ = ("is_alone", "kinds", "query", "template", "text", "values", "version")

    def __init__(self, version: int, text: str) -> None:
        self.version, self.text, self.kinds = version, text, "".join(_MARKED.findall(text))
        self.query: QueryPlan | None = None
        self.values: list[Constant] = []
        self.template: Template | None = None
        self.is_alone = False

    def filled(self, free: Sequence[int | str]) -> str:
        """The text of a query; `free`: as of `_Row`."""
        told = map(_token, self.kinds, free)
        parts = _MARKED.split(self.text)[::2]
        return "".join(part for pair in zip_longest(parts, told, fillvalue="") for part in pair)

    def constants(self, free: Sequence[int | str]) -> list[Constant]:
        """The values of constants, without the name."""
        pairs = zip(self.kinds, free, strict=True)
        return [float(value) if kind == "f" else value for kind, value in pairs if kind != "n"]


def _token(kind: str, value: int | str) -> str:
    return json.dumps(value) if kind in "sn" else str(value)


@dataclass(frozen=True, slots=True)
class _Row:
    """A query: its form, and by mark of it an integer, a string, or the digits of a float."""

    form: _Form
    free: tuple[int | str, ...]

    def text(self) -> str:
        """The query as JSON text."""
        return self.form.filled(self.free)

    @property
    def name(self) -> str:
        """Of the query."""
        return str(self.free[self.form.kinds.index("n")])


def _row_of(query: QueryPlan) -> _Row:
    known = _WRITTEN.get(id(query))
    if known is None or known[0] is not query:
        alone = plans.to_dict(Plan((), (query,)))
        known = query, _row_of_text(_json(alone["plan"]["queries"][0]), alone["version"])
        _keep(_WRITTEN, id(query), known)
    return known[1]


def _row_of_text(text: str, version: int) -> _Row:
    parts, free, end = list[str](), list[int | str](), 0
    names = 0
    for found in _FREE.finditer(text):
        kind = found.lastgroup
        assert kind is not None, "each choice is a group"
        begin, after = found.span(kind)
        parts += [text[end:begin], f"\0{kind}"]
        token, end = text[begin:after], after
        names += kind == "n"
        free.append(int(token) if kind == "i" else token if kind == "f" else json.loads(token))
    if names != 1:  # nothing that this release writes
        return _Row(_form_of(version, text), ())
    return _Row(_form_of(version, "".join([*parts, text[end:]])), tuple(free))


def _form_of(version: int, text: str) -> _Form:
    known = _FORMS.get((version, text))
    if known is None:
        known = _Form(version, text)
        _keep(_FORMS, (version, text), known)
    return known


class _Packed(TypedDict):
    """Of a packed plan: versions and texts of forms, and rows behind the number of their form."""

    forms: list[tuple[int, str]]
    queries: list[Any]


def _packed(rows: Sequence[_Row]) -> str:
    numbers: dict[_Form, int] = {}
    queries = [[numbers.setdefault(row.form, len(numbers)), *row.free] for row in rows]
    plain = {"forms": [[form.version, form.text] for form in numbers], "queries": queries}
    return packed(_json(plain))


def _rows_of(letters: str) -> list[_Row]:
    """The inverse of `_packed`; raises DamagedJson."""
    found = json_of_text(unpacked(letters), _Packed)
    forms = [_form_of(*item) for item in found["forms"]]
    rows = list[_Row]()
    for place, item in enumerate(found["queries"]):
        number, *free = item if isinstance(item, list) and item else [-1]
        form = forms[number] if type(number) is int and 0 <= number < len(forms) else None
        if form is None or not _is_of(form, free):
            raise DamagedJson(f"'queries[{place}]': expected what its form has marks for")
        rows.append(_Row(form, tuple(free)))
    return rows


def _is_of(form: _Form, free: Sequence[int | str]) -> bool:
    """Whether these are values for the marks of a form."""
    return len(free) == len(form.kinds) and all(
        type(value) is int
        if kind == "i"
        else isinstance(value, str) and (kind != "f" or _DIGITS.fullmatch(value) is not None)
        for kind, value in zip(form.kinds, free, strict=True)
    )


_DIGITS = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")


def _unpacked(text: str) -> str:
    """A plan's text as if it were not packed."""
    begin = text.find(_PACKED)
    if begin < 0:
        return text
    end = text.index('"', begin + len(_PACKED))
    rows = _rows_of(text[begin + len(_PACKED) : end])
    return f"{text[:begin]}{_QUERIES}{','.join(row.text() for row in rows)}]{text[end + 1 :]}"


def _read(text: str) -> Plan:
    """The plan of a text; what was read before is not read again."""
    try:
        events, rows, rest = _parts(text)
    except (ValueError, IndexError, DamagedJson) as error:  # damaged, or laid out in another way
        if is_packed(text):
            raise DamagedJson(str(error)) from error
        return plans.from_dict(json_of_text(text, dict[str, Any], deepest=_DEEPEST))
    stopped = plans.from_dict(rest).stopped
    read = tuple(_query_of(number, row) for number, row in enumerate(rows))
    return Plan(_events_of(*events, rest["version"]), read, stopped)


def _parts(text: str) -> tuple[tuple[str, Any], list[_Row], dict[str, Any]]:
    """The event types of a plan's text, as text and plain data, its queries, and the plan without
    them.

    Raises ValueError or IndexError for a text that is laid out in another way.
    """
    events, at = _DECODER.raw_decode(text, len(_EVENTS))
    begin = at + len(_QUERIES)
    if text[: len(_EVENTS)] == _EVENTS and text.startswith(_PACKED, at):
        begin = at + len(_PACKED)
        end = text.index('"', begin)
        rest = json_of_text(f"{_EVENTS}[]{_QUERIES}]{text[end + 1 :]}", dict[str, Any], deepest=_DEEPEST)
        return (text[len(_EVENTS) : at], events), _rows_of(text[begin:end]), rest
    if text[: len(_EVENTS)] != _EVENTS or text[at:begin] != _QUERIES:
        raise ValueError("it does not begin as plans do")
    queries = list[str]()
    place = begin
    while text[place] != "]":
        _, end = _DECODER.raw_decode(text, place)
        queries.append(text[place:end])
        place = end + (text[end] == ",")
    rest = json_of_text(f"{_EVENTS}[]{_QUERIES}{text[place:]}", dict[str, Any], deepest=_DEEPEST)
    return (text[len(_EVENTS) : at], events), [_row_of_text(own, rest["version"]) for own in queries], rest


def _events_of(text: str, plain: Any, version: int) -> tuple[EventType, ...]:
    key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    known = _PARTS_READ.get(key)
    if known is None:
        known = plans.from_dict(_alone(version, events=plain)).events
        _keep(_PARTS_READ, key, known)
    return known


def _query_of(number: int, row: _Row) -> QueryPlan:
    """The query of a row; `number`: its own, for messages."""
    known = _PARTS_READ.get(row)
    if known is None:
        try:
            known = _made_of(row)
        except WrongPart as wrong:
            wrong.steps[-2] = number  # it was the only one, and is one of many
            raise
        _keep(_PARTS_READ, row, known)
        _keep(_WRITTEN, id(known), (known, row))  # it is written as it was
    return known


def _made_of(row: _Row) -> QueryPlan:
    """The query of a row: the first of a form is read, and so is the second, with other constants;
    all others are made of that. They have all parts in common in which there is no constant."""
    form = row.form
    if form.query is not None and form.template is None and not form.is_alone:
        template = _template_of(form)
        is_it = template.filled(form.query.name, form.values) == form.query
        form.template, form.is_alone = (template, False) if is_it else (None, True)
    if form.template is not None:
        return form.template.filled(row.name, form.constants(row.free))
    query = _query_of_text(row.text(), form.version)
    if form.query is None and form.kinds:
        form.values, form.query = form.constants(row.free), query
    return query


def _template_of(form: _Form) -> Template:
    marks, free = list[Constant](), list[int | str]()
    for kind in form.kinds:
        mark = _MARK + len(marks) * 1000
        match kind:
            case "i":
                marks.append(mark)
                free.append(mark)
            case "n":
                free.append("")
            case _:
                marks.append(str(mark) if kind == "s" else mark + 0.5)
                free.append(str(marks[-1]))
    return template_with(_query_of_text(form.filled(free), form.version), marks)


def _query_of_text(text: str, version: int) -> QueryPlan:
    refuse_deep(text, _DEEPEST)
    plain = json_of_text(text, dict[str, Any], deepest=_DEEPEST)
    (query,) = plans.from_dict(_alone(version, queries=[plain])).queries
    return query


def _alone(version: int, *, events: Any = None, queries: Any = None) -> dict[str, Any]:
    plan = {"is": "Plan", "events": events or [], "queries": queries or [], "stopped": []}
    return {"version": version, "plan": plan}


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

"""Check one query: each part in its own module, and here which part sees which names.

A part with a mistake is left out and the rest is still checked, without mistakes that only follow
from the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property

from querylang.checker.blocks import CheckedBlock, check_actions, check_block, refused_lookup, signatures
from querylang.checker.checked import Diagnostics, Written
from querylang.checker.expressions.inference import Inference
from querylang.checker.namespaces import ActionSignature, Namespace
from querylang.checker.query import automaton_builder
from querylang.checker.query.automaton_builder import Predecessors
from querylang.checker.query.clauses import Clauses
from querylang.checker.query.durations import Constants
from querylang.checker.query.inputs import CheckedInputs, check_inputs
from querylang.checker.query.patterns import CheckedPattern, check_pattern, parts_of
from querylang.checker.query.remainders import Sequence, may_be_empty, pattern_text
from querylang.checker.query.selects import (
    CheckedSelects,
    check_at_most,
    check_every,
    check_selects,
    check_skip,
    outside_aggregates,
    select_names,
)
from querylang.checker.query.warnings import warn_of_dear_repeats, warn_of_no_match, warn_of_unused
from querylang.checker.scope import Repeats, Run, Scope
from querylang.dataclass import dataclass, replace
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import NUMBERS, Expression, Items, Literal, ParameterOf, Type
from querylang.plan.lookups import lookups_in, tables_of
from querylang.plan.model import Action, Automaton, Condition, Parameter, QueryPlan
from querylang.plan.routing import QUERIES_CHANNEL
from querylang.plan.text import literal_text
from querylang.source import Span
from querylang.syntax import ast


def check_query(query: ast.Query, name: str, namespace: Namespace) -> QueryPlan | None:
    """One query under its name; None if it has a mistake, which is reported."""
    section = namespace.diagnostics.section()
    find = query.find if isinstance(query.find, ast.Find) else None
    clauses = () if find is None else find.clauses
    parameters, values = _parameters(query, namespace)
    constants = Constants(namespace, values, _has_all_parameters(query), _pattern_names(find))
    inputs = _inputs(query, constants)
    pattern = CheckedPattern() if find is None else check_pattern(find.pattern, inputs, constants)
    scopes = _Scopes(find, constants, inputs, pattern, signatures(query.actions, namespace))
    _refuse_clashes(scopes, namespace.diagnostics)
    conditions = Clauses(pattern, inputs, constants, scopes.where).conditions(clauses)
    every = None if find is None else check_every(find, pattern, scopes.where, constants)
    selects = CheckedSelects()
    if find is not None and not find.is_every:
        selects = check_selects(find, pattern, scopes.select, constants)
    skip = None if find is None else check_skip(find, pattern, scopes.where, namespace.diagnostics)
    if find is not None:
        _check_repeats(find, pattern, namespace.diagnostics)
    at_most = None
    if find is not None:
        behind = scopes.select if every is None else outside_aggregates(scopes.where, pattern)
        selected = selects.values if every is None else every.values
        at_most = check_at_most(find, behind.with_names(selected), constants)
    block = CheckedBlock((), 0)
    if find is not None and find.block is not None:
        names = selects.names if every is None else every.names
        block = check_block(find.block, scopes.block(names, is_every=every is not None), namespace)
    actions = check_actions(query.actions, scopes.signatures, scopes.actions, namespace)
    if namespace.types.tables:
        _refuse_lookups(query, actions, inputs, namespace.diagnostics)
    metadata = _metadata(query, namespace)
    if not section.is_clean or find is None or pattern.tree is None or not pattern.has_all_inputs:
        return None
    decided_late = automaton_builder.decided_late(conditions, has_trailing=pattern.trailing is not None)
    automaton = _automaton(pattern, conditions, decided_late, find.pattern.span, namespace.diagnostics)
    if automaton is None:
        return None
    plan = QueryPlan(
        name=name,
        keys=inputs.keys,
        inputs=inputs.plan_inputs,
        terms=pattern.terms_of_all if find.is_all else pattern.plan_terms,
        automaton=automaton,
        conditions=conditions,
        block=block.statements,
        slots=block.slots,
        actions=actions,
        leading=pattern.leading,
        trailing=pattern.trailing,
        decided_late=decided_late,
        every=None if every is None else every.plan,
        parameters=parameters,
        metadata=metadata,
        selects=selects.plan,
        skip=skip,
        finds_all=find.is_all,
        pattern=pattern_text(pattern.tree, pattern.plan_terms, inputs.plan_inputs),
        nulls_fail=False,
        at_most=at_most,
        shows_metadata=bool(metadata),
    )
    if namespace.types.tables:
        plan = replace(plan, tables=tables_of(plan, namespace.types.tables))
    warn_of_unused(query, plan, namespace.diagnostics)
    warn_of_no_match(find, plan, namespace.diagnostics)
    repeats = [part for part in parts_of(find.pattern) if isinstance(part, ast.PatternRepeat)]
    warn_of_dear_repeats(repeats, plan, namespace.diagnostics)
    return plan


def _refuse_lookups(
    query: ast.Query, actions: tuple[Action, ...], inputs: CheckedInputs, diagnostics: Diagnostics
) -> None:
    """Refuse lookups in actions of the query, and where their answer must not change."""
    bodies = {action.name: action for action in actions}
    for node in query.actions:
        if node.name.text in bodies:
            found = refused_lookup(bodies, node.name, {})
            if found is not None:
                diagnostics.add(found)
    nodes = query.inputs.items if isinstance(query.inputs, ast.Inputs) else ()
    written = [node for node in nodes if isinstance(node, ast.InputDefinition)]
    for item in inputs.plan_inputs:
        place = next((node.event.span for node in written if node.event.text.endswith(item.event)), query.span)
        parts = {"a key": (item.keys, item.heartbeat), "the time of an event": item.time_from}
        for what, part in parts.items():
            if any(lookups_in(part)):
                diagnostics.report(Mistake.TABLE_IN_KEY, place, what=what)


def _check_repeats(find: ast.Find, pattern: CheckedPattern, diagnostics: Diagnostics) -> None:
    """Refuse repeats under `find every`, and warn of a last step that may be empty."""
    if find.is_every:
        for part in parts_of(find.pattern):
            if isinstance(part, ast.PatternRepeat):
                diagnostics.report(Mistake.REPEAT_EVERY, part.span)
                return
    if find.is_all:
        _warn_of_all_runs(find, diagnostics)
    if isinstance(pattern.tree, Sequence) and may_be_empty(pattern.tree.parts[-1]):
        last = list(parts_of(find.pattern))[-1]
        diagnostics.warn(Mistake.LAST_EMPTY, last.span)


def _warn_of_all_runs(find: ast.Find, diagnostics: Diagnostics) -> None:
    """Under `find all` each part of an open run is a match."""
    for part in parts_of(find.pattern):
        if isinstance(part, ast.PatternRepeat) and part.most is None and not part.is_consecutive:
            diagnostics.warn(Mistake.ALL_RUNS, part.span)


def _automaton(
    pattern: CheckedPattern,
    conditions: tuple[Condition, ...],
    decided_late: tuple[int, ...],
    span: Span,
    diagnostics: Diagnostics,
) -> Automaton | None:
    """The automaton; None if it is too large, which is reported at `span`."""
    assert pattern.tree is not None, "the pattern has been checked"
    has_leading = pattern.leading is not None
    try:
        return automaton_builder.build(
            pattern.tree, pattern.plan_terms, conditions, decided_late, pattern.served, has_leading=has_leading
        )
    except automaton_builder.AutomatonTooLargeError:
        diagnostics.report(Mistake.PATTERN_TOO_LARGE, span)
        return None


@dataclass(frozen=True)
class _Scopes:
    """Which names each part of a query sees. `find` None: it is missing or could not be parsed."""

    find: ast.Find | None
    constants: Constants
    inputs: CheckedInputs
    pattern: CheckedPattern
    signatures: Mapping[str, ActionSignature]

    @cached_property
    def where(self) -> Scope:
        """The scope of conditions, with the names of the pattern."""
        selected = {} if self.find is None else select_names(self.find)
        forbidden = {**self._forbidden, **dict.fromkeys(selected, Mistake.SELECT_NAME)}
        scope = self._scope({**self._everywhere, **self.pattern.events()}, forbidden, Mistake.UNKNOWN_NAME)
        return replace(scope, repeats=self._repeats(is_block=False))

    @cached_property
    def select(self) -> Scope:
        """The scope of `select` without `every`: as in a condition, but a run is all events."""
        names = self.pattern.events(with_optionals=True)
        runs = {term.name.text: names[term.name.text] for term in self.pattern.terms if term.repeat.is_run}
        return replace(self.where.with_names(runs), repeats=self._repeats(is_block=True))

    def _repeats(self, *, is_block: bool) -> Repeats | None:
        """What folds mean; None under `find every`, whose aggregates have their names."""
        if self.find is None or self.find.is_every:
            return None
        runs = {
            term.name.text: Run(term.name.text, index, term.repeat.group, term.repeat.may_be_empty or bool(term.sides))
            for index, term in enumerate(self.pattern.terms)
            if term.repeat.group is not None
        }
        names = tuple(None if term.schema is None else term.schema.name for term in self.pattern.terms)
        before = Predecessors(self.pattern).before
        return Repeats(runs, self.pattern.events(), is_block, not is_block, before, names)

    def block(self, selected: Mapping[str, Expression | None], *, is_every: bool) -> Scope:
        """The scope of the block: selected names, and without `every` those of the pattern."""
        forbidden = self._forbidden
        names = {**self._in_statements, **selected}
        if is_every:
            forbidden = {**forbidden, **dict.fromkeys(self.pattern.events(), Mistake.EVERY_NAME)}
        else:
            names |= self.pattern.events(with_optionals=True)
        scope = self._scope(names, forbidden, Mistake.UNKNOWN_HERE)
        scope = replace(scope, repeats=self._repeats(is_block=True))
        if self.find is not None and any(isinstance(clause, ast.Broken) for clause in self.find.clauses):
            scope = replace(scope, is_whole=False)
        return scope

    @cached_property
    def actions(self) -> Scope:
        """The scope of the query's actions; they get events only as arguments."""
        forbidden = dict.fromkeys(self.pattern.events(), Mistake.ACTION_NAME)
        return self._scope(self._in_statements, forbidden, Mistake.UNKNOWN_HERE)

    @cached_property
    def without_names(self) -> dict[str, ast.Name]:
        """The names of the `without` clauses, each at its first place."""
        names: dict[str, ast.Name] = {}
        for clause in () if self.find is None else self.find.clauses:
            if isinstance(clause, ast.Without):
                names.setdefault(clause.name.text, clause.name)
        return names

    @cached_property
    def _everywhere(self) -> dict[str, Expression | None]:
        """The names that everything after the inputs sees: parameters and keys."""
        return {**self.inputs.key_names, **self.constants.parameters}

    @cached_property
    def _in_statements(self) -> dict[str, Expression | None]:
        """The same in blocks and actions."""
        return {**self.inputs.key_names_in_statements, **self.constants.parameters}

    @cached_property
    def _forbidden(self) -> dict[str, Mistake]:
        """In a `find`: names of waits and of `without`s, usable only in certain clauses."""
        forbidden = dict.fromkeys(self.without_names, Mistake.WITHOUT_NAME)
        return {**forbidden, **dict.fromkeys(self.pattern.wait_names, Mistake.WAIT_NAME)}

    def _scope(
        self, names: Mapping[str, Expression | None], forbidden: Mapping[str, Mistake], unknown: Mistake
    ) -> Scope:
        is_whole = self.constants.is_whole and self.inputs.is_whole and self.pattern.is_whole
        return Scope(names, forbidden, self.signatures, unknown=unknown, is_whole=is_whole)


def _refuse_clashes(scopes: _Scopes, diagnostics: Diagnostics) -> None:
    """Report names of the pattern that are in use already; several `without`s may share one."""
    seen: set[str] = set()

    def refuse(name: ast.Name, what: str) -> None:
        if name.text in seen:
            diagnostics.report(Mistake.DUPLICATE_NAME, name.span, name=name.text)
        elif name.text in scopes.constants.parameters:
            diagnostics.report(Mistake.NAME_IS_PARAMETER, name.span, name=name.text, what=what)
        elif name.text in scopes.inputs.key_names:
            diagnostics.report(Mistake.NAME_IS_KEY, name.span, name=name.text, what=what)

    waits = [wait.name for wait in scopes.pattern.waits if wait.name is not None]
    terms = [term.name for term in scopes.pattern.terms]
    for name in sorted([*terms, *waits], key=lambda name: name.span.start):
        refuse(name, "the pattern")
        seen.add(name.text)
    for name in scopes.without_names.values():
        refuse(name, "the `without`")
    seen.update(scopes.without_names)
    if scopes.find is not None:
        for name in select_names(scopes.find).values():
            refuse(name, "the `select`")


def _inputs(query: ast.Query, constants: Constants) -> CheckedInputs:
    section = query.inputs
    return check_inputs(section, constants) if isinstance(section, ast.Inputs) else CheckedInputs(constants.namespace)


def _parameters(
    query: ast.Query, namespace: Namespace
) -> tuple[tuple[Parameter, ...], Mapping[str, Expression | None]]:
    section = query.parameters
    return check_parameters(section, namespace) if isinstance(section, ast.Parameters) else ((), {})


def _metadata(query: ast.Query, namespace: Namespace) -> tuple[tuple[str, str], ...]:
    section = query.metadata
    return check_metadata(section, namespace.diagnostics) if isinstance(section, ast.Metadata) else ()


def _pattern_names(find: ast.Find | None) -> frozenset[str]:
    """The names of events and waits, before the pattern is checked."""
    parts = () if find is None else parts_of(find.pattern)
    named = (part for part in parts if isinstance(part, ast.PatternTerm | ast.PatternWait))
    return frozenset(part.name.text for part in named if part.name is not None)


def _has_all_parameters(query: ast.Query) -> bool:
    """Whether each parameter could be parsed."""
    match query.parameters:
        case ast.Parameters(items=items):
            return not any(isinstance(item, ast.Broken) for item in items)
        case section:
            return section is None


# Parameters and metadata.

_PLAIN_TYPES = (*NUMBERS, Type.STRING, Type.BOOLEAN)
PARAMETER_TYPES = (*_PLAIN_TYPES, *map(Type.sequence, _PLAIN_TYPES))

_STRINGS = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\])*")', re.DOTALL)


def check_parameters(
    section: ast.Parameters, namespace: Namespace
) -> tuple[tuple[Parameter, ...], dict[str, Expression | None]]:
    """The parameters, and what each name means; None: its mistake was reported."""
    checked: list[Parameter] = []
    names: dict[str, Expression | None] = {}
    for node in section.items:
        if isinstance(node, ast.Broken):
            continue
        name = node.name.text
        if name in names:
            namespace.diagnostics.report(Mistake.DUPLICATE_PARAMETER, node.name.span, name=name)
            continue
        type_ = namespace.type_of(node.type)
        if type_ is not None and type_ not in PARAMETER_TYPES:
            namespace.diagnostics.report(Mistake.PARAMETER_TYPE, node.type.span, type=str(type_))
            type_ = None
        names[name] = None if type_ is None else ParameterOf(type_, name)
        if type_ is not None:
            checked.append(Parameter(name, type_, _default(node, type_, namespace)))
    return tuple(checked), names


def _default(node: ast.ParameterDefinition, type_: Type, namespace: Namespace) -> Literal | Items | None:
    """The default value; the grammar allows only a literal, or a list of literals."""
    if node.value is None:
        return None
    found = Inference(Scope({}), namespace).value(node.value, type_)
    if not isinstance(found, Literal | Items):
        return None
    if found.type != type_:
        facts = {"what": f"the value of '{node.name.text}'", "expected": str(type_), "found": str(found.type)}
        mistake = QueryError.of(Mistake.EXPECTED_TYPE, node.value.span, **facts)
        namespace.diagnostics.add(mistake.with_hint(_written_as(found, type_)))
        return None
    return found


def _written_as(found: Literal | Items, wanted: Type) -> str | None:
    """How to write the same number as a literal of the wanted type."""
    if (
        isinstance(found, Items)
        or found.type not in NUMBERS
        or wanted not in (Type.FLOAT, Type.DECIMAL)
        or found.type == Type.DECIMAL
    ):
        return None
    text = literal_text(found.value)
    text += "" if found.type == Type.FLOAT else ".0"
    return f"write `{text}{'d' if wanted == Type.DECIMAL else ''}`"


def check_metadata(section: ast.Metadata, diagnostics: Diagnostics) -> tuple[tuple[str, str], ...]:
    """The pairs as written."""
    seen: set[str] = set()
    for position, (key, _value) in enumerate(section.items):
        if key in seen:
            diagnostics.warn(Mistake.METADATA_TWICE, _key_place(section, position), name=key)
        seen.add(key)
    return section.items


def _key_place(section: ast.Metadata, position: int) -> Span:
    """The place of the key of the pair at this position."""
    source, start = section.span.source, section.span.start
    strings = [found for found in _STRINGS.finditer(section.span.text) if found.group(1)]
    if len(strings) <= 2 * position:
        return section.span
    place = strings[2 * position]
    return source.span(start + place.start(), start + place.end())


# What the statements write is read from the text alone: the plan of a query whose event types
# nothing defines lacks the statements that need their fields.


def written_by(query: ast.Query, namespace: Namespace) -> tuple[Written, ...]:
    """The statements that write, in text order."""
    found: list[Written] = []
    if isinstance(query.find, ast.Find) and query.find.block is not None:
        parts = parts_of(query.find.pattern)
        nodes = query.inputs.items if isinstance(query.inputs, ast.Inputs) else ()
        inputs = [item for item in nodes if isinstance(item, ast.InputDefinition)]
        roles = {item.role.text: item.event.text for item in inputs if item.role is not None}
        named = [part for part in parts if isinstance(part, ast.PatternTerm)]
        terms = {part.name.text: roles.get(part.event.text, part.event.text) for part in named}
        found += _of_block(query.find.block, terms, namespace)
    for action in query.actions:
        arguments = {item.name.text: item.type.word for item in action.parameters}
        found += _of_block(action.body, arguments, namespace)
    return tuple(found)


def _of_block(block: ast.Block, outer: Mapping[str, str], namespace: Namespace) -> Iterator[Written]:
    """Those of a block and of the blocks in it. `outer`: the types of the names that it sees."""
    names = dict(outer)
    for statement in block.statements:
        match statement:
            case ast.Declaration(name=name, type=type_):
                names[name.text] = type_.word
            case ast.If(then=then, otherwise=otherwise) | ast.IfPresent(then=then, otherwise=otherwise):
                yield from _of_block(then, names, namespace)
                if otherwise is not None:
                    yield from _of_block(otherwise, names, namespace)
            case ast.While(body=body) | ast.For(body=body) | ast.VendorCustom(body=body):
                yield from _of_block(body, names, namespace)
            case ast.Block():
                yield from _of_block(statement, names, namespace)
            case ast.Print():
                yield Written("print")
            case ast.Log():
                yield Written("log")
            case ast.Send(channel=ast.Constant(value=str(name)), event=event) if name == QUERIES_CHANNEL:
                yield Written("send", name, event=_event_type(event, names, namespace), span=event.span)
            case ast.Send(channel=channel):
                yield _to_channel("send", channel)
            case ast.VendorSend(channel=to):
                yield Written("send", "") if to is None else _to_channel("send", to)
            case ast.Emit(channel=to):
                yield Written("emit") if to is None else _to_channel("emit", to)
            case ast.Route(event=event):
                yield Written("route", event=_event_type(event, names, namespace), span=event.span)
            case _:  # the others write nothing
                pass


def _to_channel(word: str, channel: ast.Expression) -> Written:
    match channel:
        case ast.Constant(value=str(name)):
            return Written(word, name)
        case _:
            return Written(word, has_computed_channel=True)


def _event_type(event: ast.Expression, names: Mapping[str, str], namespace: Namespace) -> str | None:
    """The plan's name of the type of a routed event; None if the text does not say it plainly."""
    match event:
        case ast.NameUse(name=name):
            text = names.get(name.text)
        case ast.Call(receiver=None, name=name):
            text = name.text
        case ast.New(type=type_):
            text = type_.word
        case _:
            text = None
    found = [] if text is None else namespace.candidates(text)
    return namespace.types.plan_names[found[0]] if len(found) == 1 else None

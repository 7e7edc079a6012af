"""A query's plan for people: as text, and its automaton as a graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from querylang.dataclass import dataclass
from querylang.plan.expression import Expression, FieldOf
from querylang.plan.model import (
    ACCEPT,
    Between,
    Condition,
    Gap,
    Input,
    Parameter,
    Plan,
    QueryPlan,
    Skip,
    State,
    TimelineKind,
    TimePolicy,
    Transition,
    Wait,
    Where,
    Within,
    Without,
)
from querylang.plan.routing import routes_between
from querylang.plan.text import (
    INPUT_NAMES,
    Names,
    action_text,
    count_text,
    duration_text,
    expression_text,
    statement_lines,
    wait_text,
    written_name,
)
from querylang.printable import one_line


def describe_plan(plan: Plan) -> str:
    """All queries of a plan, one after the other."""
    return "\n\n".join(describe(query) for query in plan.queries)


def describe(query: QueryPlan) -> str:
    """One query as text."""
    names = Names.of(query)
    block = statement_lines(query.block, names)
    sections = [
        f"query {one_line(query.title)}",
        _section("metadata", [f"{key}: {value}" for key, value in query.metadata]),
        _section("parameters", [_parameter(parameter) for parameter in query.parameters]),
        _section("inputs", [line for item in query.inputs for line in _input(item, query)]),
        _section("pattern", [_pattern(query)]),
        _section("automaton, read backwards from the latest event", _automaton(query)),
        _section("conditions", _conditions(query, names)),
        _section("for all matches in the windows together", list(_every(query, names))),
        _section(
            "for each match" if query.every is None else "then", [*_selects(query, names), *(block or ["output"])]
        ),
        _section("after a match", [*_skip(query), *_at_most(query, names)]),
        *(_section(action_text(item), statement_lines(item.body, names)) for item in query.actions),
        _section("state", list(_bounds(query))),
        _section("events that a `=>` or `consecutive` counts", _counted(query)),
    ]
    return "\n".join(section for section in sections if section)


def condition_text(condition: Condition, query: QueryPlan, names: Names) -> str:
    """A condition as a clause."""
    match condition:
        case Where(condition=expression):
            return f"where {expression_text(expression, names)}"
        case Within(duration=duration, between=between):
            return f"within {duration_text(duration, names)}{_between(between, query)}"
        case Without(input=number, name=name, condition=expression, between=between):
            head = f"without {query.inputs[number].name} as {name}"
            where = "" if expression is None else f" where {expression_text(expression, names.with_term(name))}"
            return f"{head}{where}{_between(between, query)}"
        case Gap(duration=duration, name=name, before=before, after=after):
            earlier, later = (", ".join(query.terms[term].name for term in terms) for terms in (before, after))
            return f"{wait_text(duration, name, names)} from {earlier} to {later}"
    assert_never(condition)


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"  {title}", *(f"    {one_line(line)}" for line in lines)]) if lines else ""


def _parameter(parameter: Parameter) -> str:
    default = parameter.default
    value = "" if default is None else f" := {expression_text(default, INPUT_NAMES)}"
    return f"{parameter.type} {parameter.name}{value}"


def key_text(item: Input, query: QueryPlan) -> str:
    """The key of an input as it is written; empty: the query has none."""
    pairs = zip(query.key_names, item.keys, strict=True)
    signs = ["?" if place in item.optional_keys else "" for place in range(len(item.keys))]
    return ", ".join(_key(*pair, sign) for pair, sign in zip(pairs, signs, strict=True))


def window_text(item: Input) -> str:
    """The window of an input as it is written."""
    within = [] if item.within is None else [f"within {duration_text(item.within)}"]
    return " ".join([*within, *([] if item.retain is None else [f"retain {count_text(item.retain)}"])])


def input_text(item: Input) -> str:
    """An input's event type, with its role."""
    return item.event if item.role is None else f"{item.event} as {item.role}"


def served_text(query: QueryPlan, transition: Transition) -> str:
    """The names of the inputs that the event of a transition serves."""
    return " and ".join(query.inputs[number].name for number in transition.inputs)


def filter_text(item: Input) -> str | None:
    """The filter of an input; None: it takes all events."""
    return None if item.filter is None else expression_text(item.filter, INPUT_NAMES)


def state_lines(query: QueryPlan) -> list[str]:
    """The largest state."""
    return list(_bounds(query))


def _input(item: Input, query: QueryPlan) -> list[str]:
    key = f"key {key_text(item, query)}" if query.keys else ""
    lines = [" ".join(part for part in (input_text(item), key, window_text(item)) if part)]
    if item.filter is not None:
        lines.append(f"  only {expression_text(item.filter, INPUT_NAMES)}")
    if item.unique:
        lines.append(f"  of the same {_comma_separated(item.unique)} only the newest")
    if item.new is not None:
        lines.append(f"  new by {_comma_separated(item.new.values)} within {duration_text(item.new.within)}")
    lines.append(f"  time: {_time(item)}")
    if item.heartbeat is not None:
        heartbeat = item.heartbeat
        scope = f"for its {_comma_separated(heartbeat.keys)}" if heartbeat.keys else "for every key"
        lines.append(f"  heartbeat: {heartbeat.event}, {scope if query.keys else 'for the input'}")
    return lines


def _key(name: str, expression: Expression, sign: str) -> str:
    is_plain = isinstance(expression, FieldOf) and expression.field == name
    written = written_name(name)
    return f"{written}{sign}" if is_plain else f"{expression_text(expression, INPUT_NAMES)}{sign} as {written}"


def _comma_separated(expressions: tuple[Expression, ...]) -> str:
    return ", ".join(expression_text(item, INPUT_NAMES) for item in expressions)


def _time(item: Input) -> str:
    is_chosen = item.policy is not None and not item.policy.is_per_key
    if item.wait is None and not is_chosen:
        return "arrival"
    origin = expression_text(item.time_from, INPUT_NAMES) if item.time_from is not None else "the source's column"
    if item.policy is not None and is_chosen:
        return f"{origin}, {', '.join(_policy(item.policy))}"
    assert item.wait is not None, "there is a wait, or a policy"
    order = "out of order" if item.out_of_order else "in order"
    return f"{origin}, {order}, wait {duration_text(item.wait)}"


def _policy(policy: TimePolicy) -> Iterator[str]:
    """The ordering policy of an input's source."""
    yield f"in the order of {policy.name}"
    match policy.timeline:
        case TimelineKind.SUBSTREAM:
            yield f"a clock for each {', '.join(policy.over)}"
        case TimelineKind.PARTITION:
            yield "a clock for each partition of a source"
        case _:
            yield f"the clock of {policy.imports}" if policy.imports is not None else "one clock"
    if policy.every is not None or policy.every_span is not None:
        yield _pace(policy)
    if policy.idle is not None:
        yield f"complete after {duration_text(policy.idle)} idle"
    if policy.max_delay is not None:
        yield f"at most {duration_text(policy.max_delay)} late"
    if policy.early is not None:
        yield f"at most {duration_text(policy.early)} early"
    yield _ACTIONS[policy.action]


_ACTIONS = {
    "drop": "the rest is discarded",
    "adjust": "the rest is adjusted",
    "clip": "the rest is clipped or discarded",
}


def _pace(policy: TimePolicy) -> str:
    side = "before" if policy.disorder > 0 else "after"
    event = "the newest event" if policy.every == 1 else "the event received last"
    place = f"{duration_text(abs(policy.disorder))} {side} {event}" if policy.disorder else event
    if policy.every_span is not None:
        return f"complete up to {place}, after each {duration_text(policy.every_span)} of event time"
    return f"complete up to {place}" + ("" if policy.every == 1 else f", after each {policy.every} events")


def _pattern(query: QueryPlan) -> str:
    parts = [_wait(query.leading), query.pattern, _wait(query.trailing)]
    word = "all of: " if query.finds_all else ""
    return word + " -> ".join(part for part in parts if part)


def _wait(wait: Wait | None) -> str:
    if wait is None:
        return ""
    repeat = "" if wait.most == 1 else f" {{1,{wait.most}}}"
    return wait_text(wait.duration, wait.name) + repeat


def _automaton(query: QueryPlan) -> list[str]:
    rows = [("state", "consumes", "for", "checks", "then")]
    for number, state in enumerate(query.automaton.states):
        for transition in state.transitions:
            bound = ", ".join(query.terms[term].name for term in transition.binds)
            event = served_text(query, transition)
            target = "match" if transition.target == ACCEPT else str(transition.target)
            consumed = f"{event}, directly before" if transition.follows else event
            rows.append((str(number), consumed, bound, _numbers(transition.checks), target))
        if state.accepts is not None:
            rows.append((str(number), "nothing more", "-", _numbers(state.accepts), "match"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _numbers(checks: Sequence[int]) -> str:
    return ", ".join(str(check + 1) for check in checks) or "-"


def _conditions(query: QueryPlan, names: Names) -> list[str]:
    places: dict[int, list[int]] = {index: [] for index in range(len(query.conditions))}
    for number, state in enumerate(query.automaton.states):
        at_end = state.accepts or ()
        for check in sorted({*at_end, *(check for item in state.transitions for check in item.checks)}):
            places[check].append(number)
    return [
        f"{index + 1}  {condition_text(condition, query, names)}, {_place(places[index], index in query.decided_late)}"
        for index, condition in enumerate(query.conditions)
    ]


def _place(states: list[int], is_late: bool) -> str:
    if is_late:
        return "decided when the trailing wait ends"
    if not states:
        return "which always holds"
    return f"checked in state{'' if len(states) == 1 else 's'} {', '.join(map(str, states))}"


def _between(between: Between | None, query: QueryPlan) -> str:
    if between is None:
        return ""
    waits = [(query.leading, between.leading), (query.trailing, between.trailing)]
    leading, trailing = ([wait.name or "wait"] if wait is not None and named else [] for wait, named in waits)
    middle = [query.gaps[number].name or "wait" for number in between.middle]
    names = [*leading, *(query.terms[term].name for term in between.terms), *middle, *trailing]
    return f" between ({' '.join(names)})"


def _selects(query: QueryPlan, names: Names) -> list[str]:
    """What each match of a query without `every` selects."""
    return [f"select {expression_text(item.value, names)} as {item.name}" for item in query.selects]


def _skip(query: QueryPlan) -> list[str]:
    """From which event on a later match may begin."""
    match query.skip:
        case None:
            return []
        case Skip(term=None):
            return ["skip past last event: events up to its latest one are not bound again"]
        case Skip(to=end, term=term):
            assert term is not None
            name = query.terms[term].name
            return [f"skip to {end} {name}: events before {name} are not bound again"]


def _at_most(query: QueryPlan, names: Names) -> list[str]:
    """How many matches are given."""
    if query.at_most is None:
        return []
    limit = query.at_most
    by = ", ".join(expression_text(value, names) for value in limit.values)
    rate = f"at most {count_text(limit.count, names)} per {duration_text(limit.duration, names)}"
    return [f"{rate} by {by}" if by else rate]


def _every(query: QueryPlan, names: Names) -> Iterator[str]:
    if query.every is not None:
        for select in query.every.selects:
            yield f"select {expression_text(select.value, names)} as {select.name}"
        for condition in query.every.having:
            yield f"having {expression_text(condition, names)}"


def _bounds(query: QueryPlan) -> Iterator[str]:
    """The largest state. An event waits for definitive time before it enters its window."""
    per_key = ", per key" if query.keys else ""
    late = {item.input for item in query.conditions if isinstance(item, Without) and _reaches_end(item, query)}
    for index, item in enumerate(query.inputs):
        held = f"; before that, held for at most {_length(item.wait)}" if item.wait is not None else ""
        longer = "; longer while a match waits for its end" if index in late else ""
        yield f"{item.name}: at most {_window(item)}{per_key}{longer}{held}"
        if item.new is not None:
            values = _comma_separated(item.new.values)
            yield f"{item.name}: one time for each {values} of the last {_length(item.new.within)}{per_key}"
    if query.trailing is not None:
        rounds = "" if query.trailing.most == 1 else f"{query.trailing.most} times "
        yield f"matches that wait for their end: at most those of {rounds}{_length(query.trailing.duration)}{per_key}"
    yield from _given(query)


def _given(query: QueryPlan) -> Iterator[str]:
    """How many times are stored of matches that were given."""
    if query.at_most is not None:
        limit, names = query.at_most, Names.of(query)
        by = ", ".join(expression_text(value, names) for value in limit.values)
        times = f"{count_text(limit.count, names)} time{'' if limit.count == 1 else 's'}"
        per_value, per_key = f" for each {by}" if by else "", ", per key" if query.keys else ""
        yield f"matches that were given: at most {times}{per_value} of the last {_length(limit.duration)}{per_key}"


def _counted(query: QueryPlan) -> list[str]:
    """The inputs whose events may not be between two that directly follow each other."""
    has_nexts = any(item.follows for state in query.automaton.states for item in state.transitions)
    return [", ".join(item.name for item in query.inputs)] if has_nexts else []


def _reaches_end(condition: Without, query: QueryPlan) -> bool:
    return query.trailing is not None and (condition.between is None or condition.between.trailing)


def _window(item: Input) -> str:
    events = ""
    if item.retain is not None:
        events = f"{count_text(item.retain)} event{'' if item.retain == 1 else 's'}"
    if item.within is None:
        return events
    return f"the events of {_length(item.within)}" + (f", and of these {events}" if events else "")


def _length(duration: int | Expression) -> str:
    text = duration_text(duration)
    return text if isinstance(duration, int) else f"{text} seconds"


# The automaton as a graph: states, and transitions that say what they bind.

MATCH = "match"
"""The node that completes a match; the others are named by their numbers."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A transition from one node to another, with the lines of its text."""

    source: str
    target: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """The automaton of a query.

    late: the conditions that are checked when the trailing wait ends
    nodes: the first state, the others, MATCH
    """

    title: str
    late: tuple[str, ...]
    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]


def graph_of(query: QueryPlan) -> Graph:
    """The graph of one query."""
    names = Names.of(query)
    states = query.automaton.states
    return Graph(
        title=query.title,
        late=tuple(condition_text(query.conditions[index], query, names) for index in query.decided_late),
        nodes=(*map(str, range(len(states))), MATCH),
        edges=tuple(edge for number, state in enumerate(states) for edge in _edges(str(number), state, query, names)),
    )


def _edges(number: str, state: State, query: QueryPlan, names: Names) -> Iterator[Edge]:
    """What a state leads to; the last edge is the end of a candidate that may end there."""
    for transition in state.transitions:
        yield Edge(number, _target(transition), _lines(transition, query, names))
    if state.accepts is not None:
        checks = (condition_text(query.conditions[check], query, names) for check in state.accepts)
        yield Edge(number, MATCH, ("nothing more", *checks))


def _target(transition: Transition) -> str:
    return MATCH if transition.target == ACCEPT else str(transition.target)


def _lines(transition: Transition, query: QueryPlan, names: Names) -> tuple[str, ...]:
    bound = ", ".join(names.terms[term] for term in transition.binds)
    checks = (condition_text(query.conditions[check], query, names) for check in transition.checks)
    behind = ", directly before" if transition.follows else ""
    return f"{bound} ← {served_text(query, transition)}{behind}", *checks


def to_dot(query: QueryPlan) -> str:
    """The automaton as a graph for graphviz: states are circles."""
    graph = graph_of(query)
    label = [f"  label={_quoted(chr(10).join(['when the trailing wait ends:', *graph.late]))};"] if graph.late else []
    edges = (f"  {edge.source} -> {edge.target} [label={_quoted(chr(10).join(edge.lines))}];" for edge in graph.edges)
    lines = [
        f"digraph {_quoted(graph.title)} {{",
        *label,
        "  rankdir=LR;",
        '  node [shape=circle, fontname="sans-serif"];',
        '  edge [fontname="sans-serif"];',
        *(f"  {name};" for name in graph.nodes if name != MATCH),
        f"  {MATCH} [shape=doublecircle];",
        *edges,
        "}",
    ]
    return "\n".join(lines)


def program_to_dot(queries: Sequence[QueryPlan]) -> str:
    """Which queries feed which, as a graph for graphviz: queries are boxes; empty = none does."""
    hops = routes_between(queries)
    if not hops:
        return ""
    names = dict.fromkeys(query.name for query in queries)
    lines = [
        'digraph "program" {',
        "  rankdir=LR;",
        '  node [shape=box, fontname="sans-serif"];',
        '  edge [fontname="sans-serif"];',
        *(f"  {_quoted(name)};" for name in names),
        *(
            f"  {_quoted(source)} -> {_quoted(target)} [label={_quoted(', '.join(events))}];"
            for source, target, events in hops
        ),
        "}",
    ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

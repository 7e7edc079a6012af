"""Compile a query into the tables and programs that the kernel interprets.

Nothing here is machine code: it is data, made once per query, that the same compiled search reads
for every query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from querylang.dataclass import dataclass, field, replace
from querylang.plan.expression import Aggregate, Expression, FieldOf, Fold, Type, terms_of
from querylang.plan.lookups import looks_at_several
from querylang.plan.model import (
    Between,
    Condition,
    EventType,
    Gap,
    Plan,
    QueryPlan,
    Where,
    Within,
    Without,
    known,
    mentioned_terms,
)
from querylang.plan.questions import Question, counted_states, has_additions, question_of
from querylang.plan.remembering import MemoryRule, PartKind, is_leading, memory_rules
from runtime.exact_times import query_with_exact_times
from runtime.instants import NEVER
from runtime.matching.find_every import aggregates_of
from runtime.matching.kernel.aggregates import Arguments, Function
from runtime.matching.kernel.building import actions_of, build_program
from runtime.matching.kernel.collected import (
    COLLECTED,
    Collected,
    arguments_of,
    asked_of,
    collected_of,
    forms_of,
    function_of,
    programs_of,
    refuse_by_recency,
)
from runtime.matching.kernel.columns import Counted
from runtime.matching.kernel.forms import Shared
from runtime.matching.kernel.program import (
    Computed,
    KernelProgram,
    NotForKernel,
    Operand,
    Operation,
    Slots,
    about_one_event,
    comparison,
    conditions_of,
    operand_of,
    over_slots,
    slots_of,
)
from runtime.matching.kernel.short_cuts import Window, chain_ages, for_chain, sliding_window
from runtime.matching.kernel.tables import (
    CHECK,
    FOLD,
    MIDDLE,
    MOST_LINKS,
    QUESTION,
    RUN_STATE,
    RUN_TRANSITION,
    TERM,
    AutomatonTables,
    CheckKind,
    ConditionTables,
    Falling,
    FoldFunction,
    LateConditions,
    Records,
    RunTables,
    automaton_tables,
    condition_tables,
    ends_of,
    followed_windows,
    is_ambiguous,
    is_whole,
    records,
    tied_until,
)
from runtime.matching.windows import WindowColumns, window_columns


@dataclass(frozen=True, slots=True)
class CompiledQuery:
    """A query for the kernel.

    program: of all conditions and aggregates
    counted: each `without` whose events are counted beforehand, by count row
    followed: `followed_windows`
    within: µs, of the whole pattern; NEVER = no limit
    leading: µs, the length of the leading wait; NEVER = none
    late: the conditions that the trailing wait decides
    is_ambiguous: some transitions can tie
    sliding: of a `find every`, the window that its aggregates follow, or why its candidates are
        enumerated
    ages: `chain_ages`
    """

    program: KernelProgram
    conditions: ConditionTables
    automaton: AutomatonTables
    counted: tuple[Counted, ...]
    windows: WindowColumns
    followed: np.ndarray[tuple[int], np.dtype[np.bool_]]
    within: int
    leading: int
    late: LateConditions
    aggregates: tuple[Aggregate, ...]
    arguments: Arguments
    is_ambiguous: bool
    sliding: Window | str
    ages: np.ndarray[tuple[int], np.dtype[np.int64]] | None


def is_of_runs(query: QueryPlan) -> bool:
    """Whether it has the kernel of queries with additions, which can write all candidates down."""
    return has_additions(query) or any(node.function in COLLECTED for node in aggregates_of(query))


def types_with_actions(plan: Plan) -> tuple[EventType, ...]:
    """The types whose actions conditions may call."""
    return tuple(event for event in plan.events if event.actions)


def _compiled_query(query: QueryPlan, types: tuple[EventType, ...]) -> CompiledQuery:
    """Raises NotForKernel, with the reason, for a query that needs the reference matcher.

    types: those whose actions conditions may call
    """
    assert not is_of_runs(query), "these have a kernel of their own"
    _refuse_lookups(query)
    windows = window_columns(query)
    aggregates = aggregates_of(query)
    functions, asked = [function_of(node) for node in aggregates], [asked_of(node) for node in aggregates]
    events = [query.inputs[term.input].event for term in query.terms]
    # One program per condition over several events, then one per argument of an aggregate.
    parts: list[tuple[Expression, Sequence[str | tuple[str, ...]]]] = []
    programs, count_rows = [], []
    counted: list[Counted] = []
    for condition in query.conditions:
        program = row = -1
        # A `without` that is counted needs no program: its condition is an operand, computed as a
        # column.
        if isinstance(condition, Without) and is_counted_before(condition, query, windows):
            row, about = len(counted), condition.condition
            event = query.inputs[condition.input].event
            counted.append(Counted(condition.input, Operand(about_one_event(about), (event,)) if about else None))
        elif isinstance(condition, Where | Without) and condition.condition is not None:
            program = len(parts)
            own = query.inputs[condition.input].event if isinstance(condition, Without) else events[0]
            parts.append((condition.condition, [*events, own]))
        programs.append(program)
        count_rows.append(row)
    argument_programs = list(programs_of(asked, len(parts)))
    parts += [(item.expression, [*events, events[0]]) for item in asked if item.expression is not None]
    program_of_all = build_program(parts, actions_of(query, types), forms_of(asked, argument_programs))
    conditions = condition_tables(query, programs, count_rows, program_of_all)
    automaton = automaton_tables(query, conditions.conditions, program_of_all)
    followed = followed_windows(query, windows.is_used_later)
    within = NEVER if query.within is None else query.within
    arguments = arguments_of(functions, asked, query, program_of_all, argument_programs)
    ages = chain_ages(query, automaton, windows, followed, within)
    return CompiledQuery(
        program=program_of_all,
        conditions=conditions,
        automaton=automaton if ages is None else for_chain(automaton),
        counted=tuple(counted),
        windows=windows,
        followed=followed,
        within=within,
        leading=NEVER if query.leading is None else known(query.leading.duration),
        late=_late_conditions(query),
        aggregates=aggregates,
        arguments=arguments,
        is_ambiguous=is_ambiguous(query),
        sliding=sliding_window(query, programs, program_of_all, arguments),
        ages=ages,
    )


compile_query = Shared(_compiled_query)


def compile_all_of_chain(query: QueryPlan, types: tuple[EventType, ...]) -> CompiledQuery | None:
    """A `find all` whose pattern is a chain (`chain_ages`), without waits; None = it is something
    else.

    types: as of `_compiled_query`
    """
    first_only = replace(query, finds_all=False)
    has_waits = query.trailing is not None or query.leading is not None
    if not query.finds_all or has_waits or query.shared_types or is_of_runs(first_only):
        return None
    compiled = compile_query(first_only, types)
    return None if compiled.ages is None else compiled


def _refuse_lookups(query: QueryPlan) -> None:
    """Raises NotForKernel for lookups that are not stored with one event."""
    expressions = (*conditions_of(query), *aggregates_of(query))
    if query.tables and any(map(looks_at_several, expressions)):
        raise NotForKernel("something is looked up that is about several events, or about none")


def is_counted_before(condition: Without, query: QueryPlan, windows: WindowColumns) -> bool:
    """Whether the events of a `without` can be counted beforehand.

    They cannot if its condition is about the candidate too, or if newer events may supersede them.
    """
    about = frozenset() if condition.condition is None else terms_of(condition.condition)
    return about <= {len(query.terms)} and not windows.is_unique[condition.input]


def _late_conditions(query: QueryPlan) -> LateConditions:
    mentions = [sorted(mentioned_terms(query.conditions[index], len(query.terms))) for index in query.decided_late]
    return LateConditions(
        np.array(query.decided_late, np.int64),
        ends_of([len(terms) for terms in mentions]),
        np.array([term for terms in mentions for term in terms], np.int64),
    )


# Make the tables and programs of a query with additions.


@dataclass(frozen=True, slots=True)
class CompiledRuns:
    """A query with additions for its kernel.

    counted, followed, within, leading, is_ambiguous: as in `runtime.matching.kernel.compilation`
    slots: how many slots its programs read
    reads_other_slots: some of them are not of terms
    aggregates, arguments: of a `find every`
    collected: the aggregates that need all of their values at once
    asked: what is written down for these
    """

    program: KernelProgram
    tables: RunTables
    aggregates: tuple[Aggregate, ...]
    arguments: Arguments
    collected: tuple[Collected, ...]
    asked: Arguments
    counted: tuple[Counted, ...]
    windows: WindowColumns
    followed: np.ndarray[tuple[int], np.dtype[np.bool_]]
    within: int
    leading: int
    is_ambiguous: bool
    slots: int
    reads_other_slots: bool


def _compiled_runs(query: QueryPlan, types: tuple[EventType, ...]) -> CompiledRuns:
    """As `_compiled_query`."""
    if query.finds_all and (is_ambiguous(query) or any(term.sides for term in query.terms)):
        raise NotForKernel("`find all` where one event may serve different names")
    _refuse_lookups(query)
    aggregates = aggregates_of(query)
    functions, added = [function_of(node) for node in aggregates], [asked_of(node) for node in aggregates]
    collected, asked = collected_of(aggregates)
    if is_ambiguous(query):
        refuse_by_recency(aggregates)
    query = query_with_exact_times(query)
    made = _Tables(query, slots_of(query), window_columns(query))
    made.add_conditions()
    events = made.slots.events(query.inputs[0].event)
    numbers = list(programs_of((*added, *asked), len(made.parts)))
    made.parts += [(item.expression, events) for item in (*added, *asked) if item.expression is not None]
    program = build_program(made.parts, actions_of(query, types), forms_of((*added, *asked), numbers))
    arguments = arguments_of(functions, added, query, program, numbers[: len(added)])
    written = arguments_of([Function.COLLECTED] * len(asked), asked, query, program, numbers[len(added) :])
    for item in collected:  # what stands for the value is what stands for its first argument
        arguments.operand[item.index] = written.operand[item.arguments[0]]
    return CompiledRuns(
        program=program,
        tables=made.tables(program),
        aggregates=aggregates,
        arguments=arguments,
        collected=tuple(collected),
        asked=written,
        counted=tuple(made.counted),
        windows=made.windows,
        followed=followed_windows(query, made.windows.is_used_later),
        within=NEVER if query.within is None else query.within,
        leading=NEVER if query.leading is None else known(query.leading.duration),
        is_ambiguous=is_ambiguous(query),
        slots=made.slots.count,
        reads_other_slots=bool(made.slots.prevs or made.slots.ends),
    )


compile_runs = Shared(_compiled_runs)


def program_for_types(made: CompiledRuns, plan: Plan, query: QueryPlan) -> KernelProgram:
    """The program; an operand of the event before may be of any type that has the field."""
    program = made.program
    if not made.reads_other_slots:
        return program
    types = [plan.event(item.event) for item in query.inputs]

    def widened(item: Operand) -> Operand:
        about = item.expression
        if not isinstance(about, FieldOf):
            return item
        wanted = about.field, about.type
        fields = {type_.name for type_ in types for own in type_.fields if (own.name, own.type) == wanted}
        return replace(item, events=tuple(dict.fromkeys((*item.events, *sorted(fields)))))

    return replace(
        program,
        integer_operands=tuple(map(widened, program.integer_operands)),
        float_operands=tuple(map(widened, program.float_operands)),
    )


@dataclass(slots=True)
class _Tables:
    """The tables in the making.

    parts: the programs' expressions with the types of their slots
    lists: as in `Tables`
    conditions: by condition, its `CHECK` without what the place decides
    """

    query: QueryPlan
    slots: Slots
    windows: WindowColumns
    parts: list[tuple[Any, Sequence[str | tuple[str, ...]]]] = field(default_factory=list)
    counted: list[Counted] = field(default_factory=list)
    lists: list[int] = field(default_factory=list)
    conditions: list[dict[str, int]] = field(default_factory=list)
    questions: list[dict[str, int]] = field(default_factory=list)
    asked: list[Question | None] = field(default_factory=list)
    folds: list[dict[str, int]] = field(default_factory=list)
    fold_values: list[Computed] = field(default_factory=list)

    def add_conditions(self) -> None:
        """Adds all conditions, with their programs."""
        for condition in self.query.conditions:
            question = question_of(condition, self.query.terms)
            self.asked.append(question)
            kind = CheckKind.WITHIN if isinstance(condition, Within) else CheckKind.WITHOUT
            if isinstance(condition, Where):
                kind = CheckKind.WHERE
                if question is not None:
                    kind = CheckKind.WHOLE if question.is_whole else CheckKind.EACH
            if isinstance(condition, Gap):
                kind = CheckKind.GAP
            between = condition.between if isinstance(condition, Within | Without) else None
            first, stop = self._listed(condition.after) if isinstance(condition, Gap) else self._range(between)
            middle = () if between is None else between.middle
            if isinstance(condition, Gap):
                middle = (self.query.gaps.index(condition),)
            first_middle, stop_middle = self._listed(middle)
            program, row = self._program(condition)
            self.conditions.append(
                {
                    "kind": kind,
                    "program": program,
                    "length": known(condition.duration) if isinstance(condition, Within) else NEVER,
                    "input": condition.input if isinstance(condition, Without) else -1,
                    "first_term": first,
                    "stop_term": stop,
                    "is_leading": is_leading(condition, self.query),
                    "count_row": row,
                    "question": -1 if question is None else self._question(question, condition),
                    "first_middle": first_middle,
                    "stop_middle": stop_middle,
                }
            )

    def _range(self, between: Between | None) -> tuple[int, int]:
        """The terms of a range."""
        return self._listed(range(len(self.query.terms)) if between is None else between.terms)

    def _listed(self, values: Sequence[int]) -> tuple[int, int]:
        first = len(self.lists)
        self.lists += values
        return first, len(self.lists)

    def _program(self, condition: Condition) -> tuple[int, int]:
        """The number of a condition's program and its row of counts; -1 = none."""
        if not isinstance(condition, Where | Without):
            return -1, -1
        about, own = condition.condition, self.query.inputs[0].event
        if isinstance(condition, Without):
            own = self.query.inputs[condition.input].event
            if is_counted_before(condition, self.query, self.windows):
                self.counted.append(
                    Counted(condition.input, Operand(about_one_event(about), (own,)) if about else None)
                )
                return -1, len(self.counted) - 1
        if about is None:
            return -1, -1
        self.parts.append((over_slots(about, self.slots), self.slots.events(own)))
        return len(self.parts) - 1, -1

    def _question(self, question: Question, condition: Condition) -> int:
        terms = self.query.terms
        named = condition.between.terms if isinstance(condition, Without) and condition.between is not None else ()
        optional = {term for term in question.mentions if terms[term].is_optional}
        optional |= {term for term in named if terms[term].is_optional}
        prevs = [number for term in sorted(question.prevs) for number in (term, self.slots.prevs[term])]
        ends = [
            number
            for item in question.ends
            for is_first in (item.function == "first",)
            for number in (item.term, self.slots.ends[item.term, is_first], int(is_first))
        ]
        first_fold = len(self.folds)
        for fold in question.folds:
            self._fold(fold)
        lists = {"run": question.runs, "prev": prevs, "optional": sorted(optional), "end": ends, "named": named}
        row = {"first_fold": first_fold, "stop_fold": len(self.folds)}
        for name, values in lists.items():
            row[f"first_{name}"], row[f"stop_{name}"] = self._listed(values)
        self.questions.append(row)
        return len(self.questions) - 1

    def _fold(self, fold: Fold) -> None:
        first, stop = self._listed(fold.terms)
        program = -1
        if fold.function != "count":
            program = len(self.parts)
            self.parts.append((over_slots(fold.argument, self.slots), self.slots.events(self.query.inputs[0].event)))
        functions = {"sum": "SUM", "avg": "MEAN", "min": "MIN", "max": "MAX", "count": "COUNT"}
        row = {
            "function": FoldFunction[functions[fold.function]],
            "program": program,
            "is_float": fold.argument.type == Type.FLOAT,
            "is_float_result": fold.type == Type.FLOAT,
            "none_fails": self.query.nulls_fail,
            "first_run": first,
            "stop_run": stop,
        }
        self.folds.append(row)
        self.fold_values.append(self.slots.folds[fold])

    def tables(self, program: KernelProgram) -> RunTables:
        """All tables."""
        query = self.query
        states, rules = query.automaton.states, memory_rules(query)
        transitions = [item for state in states for item in state.transitions]
        at_transitions = [
            [(check, frozenset(item.binds)) for check in item.checks if not is_whole(query.conditions[check])]
            for item in transitions
        ]
        at_ends = [
            [(check, frozenset[int]()) for check in state.accepts or () if not is_whole(query.conditions[check])]
            for state in states
        ]
        places = [*at_transitions, *at_ends]
        check_ends = ends_of([len(items) for items in places])
        checks = [self._check(program, index, binds) for items in places for index, binds in items]
        takes = [{item.input for item in state.transitions} for state in states]
        only = [min(inputs) if len(inputs) == 1 else -1 for inputs in takes]
        is_next_only = [bool(state.transitions) and all(item.follows for item in state.transitions) for state in states]
        linked = sorted(
            {item for item, is_next in zip(only[1:], is_next_only[1:], strict=True) if item >= 0 and not is_next}
        )[:MOST_LINKS]
        parts = [(int(kind), term) for rule in rules if rule for kind, term in rule.parts]
        bind_ends = ends_of([len(item.binds) for item in transitions])
        return RunTables(
            states=self._states(rules, only, linked, is_next_only, check_ends[len(transitions) :]),
            transitions=records(
                RUN_TRANSITION,
                input=[item.input for item in transitions],
                target=[item.target for item in transitions],
                tied_until=list(tied_until(query.automaton)),
                follows=[item.follows for item in transitions],
                first_bind=bind_ends[:-1],
                stop_bind=bind_ends[1:],
                first_check=check_ends[: len(transitions)],
                stop_check=check_ends[1 : len(transitions) + 1],
            ),
            checks=_rows(CHECK, checks),
            questions=_rows(QUESTION, self.questions),
            folds=_rows(FOLD, [row | self._of_program(program, index) for index, row in enumerate(self.folds)]),
            middles=self._middles(),
            terms=self._terms(parts),
            binds=np.array([term for item in transitions for term in item.binds], np.int64),
            lists=np.array(self.lists or [0], np.int64),
            parts=np.array(parts or [(0, 0)], np.int64),
            linked_inputs=np.array(linked, np.int64),
            is_first=np.array([index in takes[0] for index in range(len(query.inputs))]),
            keeps_memory=any(rule is not None and bool(rule.parts) and rule.is_lasting for rule in rules),
        )

    def _check(self, program: KernelProgram, index: int, binds: frozenset[int]) -> dict[str, int]:
        """A condition where it is checked."""
        row, question = self.conditions[index], self.asked[index]
        compared = None if row["program"] < 0 else comparison(program, row["program"])
        newest_only = question is not None and not question.plain & (question.prevs | binds)
        return row | {
            "newest_only": newest_only,
            "operation": compared.operation if compared else -1,
            "left": compared.left if compared else 0,
            "left_term": compared.left_term if compared else 0,
            "right": compared.right if compared else 0,
            "right_term": compared.right_term if compared else 0,
        }

    def _states(
        self,
        rules: Sequence[MemoryRule | None],
        only: Sequence[int],
        linked: Sequence[int],
        is_next_only: Sequence[bool],
        check_ends: Any,
    ) -> Records:
        query, states = self.query, self.query.automaton.states
        ends = ends_of([len(state.transitions) for state in states])
        part_ends = ends_of([len(rule.parts) if rule else 0 for rule in rules])
        keeps_found = is_ambiguous(query)
        is_direct = [rule is not None and not rule.parts and (keeps_found or not rule.is_falling) for rule in rules]
        link_rows = [
            linked.index(item) if item in linked and not is_next else -1
            for item, is_next in zip(only, is_next_only, strict=True)
        ]
        return records(
            RUN_STATE,
            first_transition=ends[:-1],
            stop_transition=ends[1:],
            # Without a link the search meets events of other inputs too.
            input=[item if row >= 0 else -1 for item, row in zip(only, link_rows, strict=True)],
            link_row=link_rows,
            is_next_only=is_next_only,
            is_end=[state.accepts is not None for state in states],
            first_check=check_ends[:-1],
            stop_check=check_ends[1:],
            fail_row=_numbered([rule is not None and not rule.parts and rule.is_falling for rule in rules]),
            direct_row=_numbered(is_direct),
            hash_row=_numbered([rule is not None and bool(rule.parts) for rule in rules]),
            is_falling=[_falling(rule) for rule in rules],
            is_lasting=[rule is not None and rule.is_lasting for rule in rules],
            first_part=part_ends[:-1],
            stop_part=part_ends[1:],
            is_counted=counted_states(query),
        )

    def _middles(self) -> Records:
        gaps = self.query.gaps
        before = [self._listed(item.before) for item in gaps] or [(0, 0)]
        return records(
            MIDDLE,
            first_before=[first for first, _ in before],
            stop_before=[stop for _, stop in before],
            length=[known(item.duration) for item in gaps] or [0],
        )

    def _terms(self, parts: Sequence[tuple[int, int]]) -> Records:
        terms = self.query.terms
        sides = [self._listed(term.side) for term in terms]
        numbered = {term for kind, term in parts if kind == PartKind.RUN}
        return records(
            TERM,
            is_optional=[term.is_optional for term in terms],
            first_side=[first for first, _ in sides],
            stop_side=[stop for _, stop in sides],
            is_numbered=[index in numbered for index in range(len(terms))],
        )

    def _of_program(self, program: KernelProgram, fold: int) -> dict[str, int]:
        """What a fold adds up if that is an operand, and the constants that stand for the fold."""
        literal = self.fold_values[fold]
        is_float = literal.type == Type.FLOAT
        constants = program.float_constants if is_float else program.integer_constants
        operation, own, state = program.code.T
        is_own = (operation == (Operation.CONSTANT_F if is_float else Operation.CONSTANT_I)) & (state > 0)
        is_own[is_own] = constants[own[is_own]] == literal.value
        first, stop = self._listed(own[is_own].tolist())
        first_state, stop_state = self._listed((state[is_own] - 1).tolist())
        number = self.folds[fold]["program"]
        operand, term = (number >= 0 and operand_of(program, number)) or (-1, 0)
        return {
            "operand": operand,
            "term": term,
            "first_constant": first,
            "stop_constant": stop,
            "first_state": first_state,
            "stop_state": stop_state,
        }


def _falling(rule: MemoryRule | None) -> Falling:
    if rule is None or not (rule.is_falling or rule.is_alike):
        return Falling.NOTHING
    return Falling.OLDER if rule.is_falling else Falling.LOOP


def _numbered(chosen: Sequence[bool]) -> list[int]:
    """A number for each that is chosen, -1 for the others."""
    return [sum(chosen[:index]) if is_chosen else -1 for index, is_chosen in enumerate(chosen)]


def _rows(dtype: np.dtype[Any], rows: Sequence[dict[str, int]]) -> Records:
    """Records from one dictionary each; at least one, so that kernels see the type."""
    assert dtype.names is not None, "a record has fields"
    return records(dtype, **{name: [int(row[name]) for row in rows] for name in dtype.names})

"""Build the programs of conditions (`runtime.matching.kernel.program`) from expressions.

Actions that only calculate are part of the program that calls them: their parameters and variables
are entries of the stacks, below what an expression leaves there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

import numpy as np

from querylang.dataclass import dataclass, field, replace
from querylang.plan.expression import (
    SCALARS,
    Binary,
    Call,
    EventOf,
    Expression,
    FieldOf,
    Invoke,
    KeyOf,
    Kind,
    Literal,
    LocalOf,
    MemberOf,
    Type,
    Unary,
    rewritten,
    terms_of,
    walk,
)
from querylang.plan.model import Action, Assign, EventType, If, QueryPlan, Return, Statement
from runtime.exact_times import with_exact_times
from runtime.matching.kernel.functions import OfFloat, OfFloats, OfInteger, OfIntegers, ToInteger
from runtime.matching.kernel.program import (
    CALL,
    STACK,
    Computed,
    Form,
    KernelProgram,
    NotForKernel,
    Operand,
    Operation,
    about_one_event,
)

RANKED = (Type.STRING, Type.DECIMAL)
"""Types whose values are only compared: a rank among all values stands for each."""

_STACKED = (*SCALARS, Type.DECIMAL)

_ARITHMETIC = {"+": "ADD", "-": "SUBTRACT", "*": "MULTIPLY", "/": "DIVIDE", "%": "REMAINDER"}
_COMPARISON = {"=": "EQUAL", "!=": "DIFFERENT", "<": "LESS", "<=": "LESS_EQUAL", ">": "LESS", ">=": "LESS_EQUAL"}

_EFFECTS: dict[Operation, tuple[int, int]] = {
    **dict.fromkeys((Operation.PUSH_I, Operation.CONSTANT_I, Operation.LOCAL_I), (1, 0)),
    **dict.fromkeys((Operation.PUSH_F, Operation.CONSTANT_F, Operation.LOCAL_F), (0, 1)),
    **{item: (-1, 0) for item in Operation if item.name.endswith("_I") and 10 <= item <= Operation.LESS_EQUAL_I},
    **{item: (0, -1) for item in Operation if Operation.ADD_F <= item <= Operation.REMAINDER_F},
    **{item: (1, -2) for item in Operation if Operation.EQUAL_F <= item <= Operation.LESS_EQUAL_F},
    Operation.TO_FLOAT: (-1, 1),
    Operation.TO_INTEGER: (1, -1),
    Operation.AND: (-1, 0),
    Operation.OR: (-1, 0),
    Operation.OF_FLOATS: (0, -1),
    Operation.OF_INTEGERS: (-1, 0),
    Operation.ROUNDED: (1, -1),
    Operation.BIT_EQUALS: (1, -2),
    Operation.SET_I: (-1, 0),
    Operation.SET_F: (0, -1),
    Operation.JUMP_UNLESS: (-1, 0),
}
"""How many entries an operation adds to the stack of integers and to that of floats."""


_FUNCTIONS = {
    "abs": OfFloat.ABS,
    "sqrt": OfFloat.SQRT,
    "exp": OfFloat.EXP,
    "ln": OfFloat.LN,
    "log": OfFloat.LN,
    "log10": OfFloat.LOG10,
    "sin": OfFloat.SIN,
    "cos": OfFloat.COS,
    "tan": OfFloat.TAN,
    "asin": OfFloat.ASIN,
    "acos": OfFloat.ACOS,
    "atan": OfFloat.ATAN,
    "sinh": OfFloat.SINH,
    "cosh": OfFloat.COSH,
    "tanh": OfFloat.TANH,
    "asinh": OfFloat.ASINH,
    "acosh": OfFloat.ACOSH,
    "atanh": OfFloat.ATANH,
    "erf": OfFloat.ERF,
    "integralPart": OfFloat.INTEGRAL_PART,
    "fractionalPart": OfFloat.FRACTIONAL_PART,
}
_Steps = tuple[tuple[Operation, int], ...]
_FLOAT_METHODS: dict[str, _Steps] = {
    **{name: ((Operation.OF_FLOAT, function),) for name, function in _FUNCTIONS.items()},
    "min": ((Operation.OF_FLOATS, OfFloats.MIN),),
    "max": ((Operation.OF_FLOATS, OfFloats.MAX),),
    "pow": ((Operation.OF_FLOATS, OfFloats.POW),),
    "atan2": ((Operation.OF_FLOATS, OfFloats.ATAN2),),
    "fmod": ((Operation.REMAINDER_F, 0),),
    "floor": ((Operation.ROUNDED, ToInteger.FLOOR),),
    "ceil": ((Operation.ROUNDED, ToInteger.CEIL),),
    "round": ((Operation.ROUNDED, ToInteger.ROUND),),
    "isNaN": ((Operation.ROUNDED, ToInteger.IS_NAN),),
    "isFinite": ((Operation.ROUNDED, ToInteger.IS_FINITE),),
    "isInfinite": ((Operation.ROUNDED, ToInteger.IS_INFINITE),),
    "bitEquals": ((Operation.BIT_EQUALS, 0),),
    "toInteger": ((Operation.TO_INTEGER, 0),),
    "toFloat": (),
}
_INTEGER_METHODS: dict[str, _Steps] = {
    **dict.fromkeys(("ceil", "floor", "round", "toInteger"), ()),
    **{
        name: ((Operation.TO_FLOAT, 0), (Operation.OF_FLOAT, _FUNCTIONS[name]))
        for name in ("sqrt", "exp", "ln", "log", "log10")
    },
    "abs": ((Operation.OF_INTEGER, OfInteger.ABS),),
    "min": ((Operation.OF_INTEGERS, OfIntegers.MIN),),
    "max": ((Operation.OF_INTEGERS, OfIntegers.MAX),),
    "pow": ((Operation.OF_INTEGERS, OfIntegers.POW),),
    "isNaN": ((Operation.OF_INTEGER, OfInteger.NEVER),),
    "isFinite": ((Operation.OF_INTEGER, OfInteger.ALWAYS),),
    "isInfinite": ((Operation.OF_INTEGER, OfInteger.NEVER),),
    "toFloat": ((Operation.TO_FLOAT, 0),),
}
_METHODS: dict[tuple[Type, str], _Steps] = {
    (type_, name): steps
    for type_, methods in ((Type.FLOAT, _FLOAT_METHODS), (Type.INTEGER, _INTEGER_METHODS))
    for name, steps in methods.items()
}
"""By the receiver's type and the name: what follows when the receiver and the arguments are on the
stacks. `cbrt`, `mantissa` and `exponent` are not here: numba does not compile them to what the
interpreter gives."""


@dataclass(slots=True)
class _Builder:
    """A `KernelProgram` in the making.

    operand_numbers: by expression, event type and form; the type is None for a field, which all
        types share
    events: the event type of each term, or all that it may have, for the program at work
    actions: that conditions may call, by event type (None: the query's) and name
    integers, floats: how many entries the stacks have here
    frames: of the actions at work, the innermost one last
    """

    code: list[tuple[int, int, int]] = field(default_factory=list)
    integer_constants: list[int] = field(default_factory=list)
    float_constants: list[float] = field(default_factory=list)
    integer_operands: list[Operand] = field(default_factory=list)
    float_operands: list[Operand] = field(default_factory=list)
    ranked: list[tuple[int, str | Decimal]] = field(default_factory=list)
    operand_numbers: dict[tuple[Expression, str | None, Form], int] = field(default_factory=dict)
    events: tuple[str | tuple[str, ...], ...] = ()
    actions: Mapping[_Called, Action] = field(default_factory=dict)
    integers: int = 0
    floats: int = 0
    frames: list[_Frame] = field(default_factory=list)

    def add(self, operation: Operation, first: int = 0, second: int = 0) -> None:
        self.code.append((int(operation), first, second))
        integers, floats = _EFFECTS.get(operation, (0, 0))
        self.integers, self.floats = self.integers + integers, self.floats + floats
        if max(self.integers, self.floats) > STACK:
            raise NotForKernel(f"a condition is nested more than {STACK} deep")


_Called = tuple[str | None, str]
"""The event type of an action, None for one of the query, and its name."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """An action at work.

    events: by slot, the event that a parameter is
    places: by slot and whether it is a float, the entry of its stack that a variable is
    """

    called: _Called
    events: Mapping[int, EventOf]
    places: Mapping[tuple[int, bool], int]


def actions_of(query: QueryPlan, events: Iterable[EventType]) -> dict[_Called, Action]:
    """The actions that the conditions of a query may call."""
    of_events: dict[_Called, Action] = {
        (event.name, action.name): action for event in events for action in event.actions
    }
    return of_events | {(None, action.name): action for action in query.actions}


def build_program(
    parts: Sequence[tuple[Expression, Sequence[str | tuple[str, ...]]]],
    actions: Mapping[_Called, Action],
    forms: Mapping[int, Form] | None = None,
) -> KernelProgram:
    """The programs of expressions, each given with its terms' event types; raises NotForKernel.

    The last term is an event of the key that is always there: expressions over keys only are read
    from it.

    forms: by part that is one operand with another form than VALUE
    """
    builder = _Builder(actions=actions)
    ends = [0]
    for part, (expression, events) in enumerate(parts):
        builder.events, builder.integers, builder.floats = tuple(events), 0, 0
        if forms is None or part not in forms:
            _emit(builder, with_exact_times(expression))
        elif not is_operand(expression):
            raise NotForKernel("an aggregate of a value over several events, or over none")
        else:
            _operand(builder, expression, _only_term(builder, expression), forms[part])
        ends.append(len(builder.code))
    return KernelProgram(
        code=np.array(builder.code or [(0, 0, 0)], np.int32),
        ends=np.array(ends, np.int64),
        integer_constants=np.array(builder.integer_constants or [0], np.int64),
        float_constants=np.array(builder.float_constants or [0.0], np.float64),
        integer_operands=tuple(builder.integer_operands),
        float_operands=tuple(builder.float_operands),
        ranked=tuple(builder.ranked),
    )


def _emit(builder: _Builder, expression: Expression) -> None:
    """Adds instructions that push the value of `expression`."""
    # Whatever is about one event only is one operand: it may be anything, as a column is computed
    # by other means.
    if is_operand(expression):
        _operand(builder, expression, _only_term(builder, expression))
        return
    match expression:
        case Unary(type=Type.INTEGER, operator="not", operand=operand):
            _emit(builder, operand)
            builder.add(Operation.OF_INTEGER, OfInteger.BITS_NOT)
        case Binary(type=Type.INTEGER, operator="and" | "or" | "xor"):
            _emit_all(builder, (expression.left, expression.right))
            builder.add(Operation.OF_INTEGERS, OfIntegers[f"BITS_{expression.operator.upper()}"])
        case Literal(type=type_, value=value) if type_ in _STACKED:
            _constant(builder, type_, value, has_state=isinstance(expression, Computed))
        case Unary(operator="is null"):
            raise NotForKernel("`is null` over several events")
        case Unary(operator=operator, operand=operand) if operand.type in SCALARS:
            _emit(builder, operand)
            suffix = _suffix(operand.type)
            builder.add(Operation.NOT if operator == "not" else Operation[f"NEGATE_{suffix}"])
        case Binary(operator="and" | "or"):
            _short_circuit(builder, expression)
        case Binary(left=left) if left.type in _STACKED:
            _binary(builder, expression)
        case Call(method=method, receiver=receiver, arguments=arguments):
            steps = None if receiver.type is None else _METHODS.get((receiver.type, method))
            if steps is None:
                raise NotForKernel(f"`{method}()` over several events")
            _emit_all(builder, (receiver, *arguments))
            for step in steps:
                builder.add(*step)
        case LocalOf(type=type_, slot=slot):
            is_float = type_ == Type.FLOAT
            builder.add(Operation.LOCAL_F if is_float else Operation.LOCAL_I, builder.frames[-1].places[slot, is_float])
        case Invoke():
            _invoke(builder, expression)
        case _:
            raise NotForKernel("values other than numbers, booleans and strings over several events")


def is_operand(expression: Expression) -> bool:
    """Whether an expression is about one event, or about keys only."""
    terms = terms_of(expression)
    is_of_events = not any(isinstance(node, Computed | LocalOf) for node in walk(expression))
    return is_of_events and (len(terms) == 1 or _is_about_keys(expression, terms))


def _only_term(builder: _Builder, expression: Expression) -> int:
    """The term that an operand is read from."""
    return min(terms_of(expression), default=len(builder.events) - 1)


def _emit_all(builder: _Builder, parts: Sequence[Expression]) -> None:
    """Adds instructions that push some values, the last one on top."""
    for part in parts:
        _emit(builder, part)


def _invoke(builder: _Builder, call: Invoke) -> None:
    """Adds the instructions of an action; its arguments and variables go from the stacks again."""
    receiver = call.receiver
    called = None if receiver is None or receiver.type is None else receiver.type.name, call.action
    action = builder.actions[called]
    if any(frame.called == called for frame in builder.frames):
        raise NotForKernel(f"the action `{call.action}`, which calls itself, over several events")
    if not _only_calculates(action.body) or action.returns not in SCALARS:
        raise NotForKernel(f"the action `{call.action}`, which does more than calculate, over several events")
    integers, floats = builder.integers, builder.floats
    events: dict[int, EventOf] = {}
    places: dict[tuple[int, bool], int] = {}
    for slot, part in enumerate(call.arguments if receiver is None else (receiver, *call.arguments)):
        if isinstance(part, EventOf):
            events[slot] = part
            continue
        if part.type not in SCALARS:
            raise NotForKernel(f"an argument of type {part.type} of the action `{call.action}` over several events")
        place = _place(builder, part.type)
        _emit(builder, part)
        places[slot, part.type == Type.FLOAT] = place
    null_call = len(builder.code)
    builder.add(Operation.NULL_CALL)  # replaced below, when the length of the action is known
    given = builder.integers - integers, builder.floats - floats
    for local in _variables(action.body):
        if (local.slot, local.type == Type.FLOAT) not in places:
            places[local.slot, local.type == Type.FLOAT] = _place(builder, local.type)
            _constant(builder, local.type, 0, has_state=False)
    builder.frames.append(_Frame(called, events, places))
    returns = _statements(builder, action.body, (integers, floats))
    builder.frames.pop()
    is_float = action.returns == Type.FLOAT
    if returns and returns[-1] == len(builder.code) - 1:
        del builder.code[returns.pop()]  # a jump to where it stands
    for at in returns:
        builder.code[at] = (int(Operation.JUMP), len(builder.code) - at - 1, 0)
    code = given[0] + CALL * given[1] + CALL * CALL * is_float
    builder.code[null_call] = (int(Operation.NULL_CALL), code, len(builder.code) - null_call - 1)
    builder.integers, builder.floats = integers + (not is_float), floats + is_float


def _only_calculates(statements: Sequence[Statement]) -> bool:
    """Whether an action assigns numbers and truth values, decides and returns, and nothing else."""
    for statement in statements:
        match statement:
            case Assign(target=LocalOf(type=type_)):
                fits = type_ in SCALARS
            case If(then=then, otherwise=otherwise):
                fits = _only_calculates(then) and _only_calculates(otherwise)
            case Return(value=value):
                fits = value is not None
            case _:
                fits = False
        if not fits:
            return False
    return True


def _variables(statements: Sequence[Statement]) -> Iterator[LocalOf]:
    """What statements assign to."""
    for statement in statements:
        if isinstance(statement, Assign) and isinstance(statement.target, LocalOf):
            yield statement.target
        elif isinstance(statement, If):
            yield from _variables(statement.then)
            yield from _variables(statement.otherwise)


def _place(builder: _Builder, type_: Type) -> int:
    """The entry of its stack that the next value of a type will be."""
    return builder.floats if type_ == Type.FLOAT else builder.integers


def _statements(builder: _Builder, statements: Sequence[Statement], base: tuple[int, int]) -> list[int]:
    """Adds the instructions of an action's statements; gives the places of jumps to its end.

    base: how many entries the stacks had before its arguments
    """
    returns: list[int] = []
    for statement in statements:
        match statement:
            case Assign(target=LocalOf(type=type_, slot=slot), value=value):
                _emit(builder, _over_terms(builder, value))
                is_float = type_ == Type.FLOAT
                builder.add(Operation.SET_F if is_float else Operation.SET_I, builder.frames[-1].places[slot, is_float])
            case If(condition=condition, then=then, otherwise=otherwise):
                _emit(builder, _over_terms(builder, condition))
                unless = len(builder.code)
                builder.add(Operation.JUMP_UNLESS)
                returns += _statements(builder, then, base)
                jump = len(builder.code)
                builder.add(Operation.JUMP)
                builder.code[unless] = (int(Operation.JUMP_UNLESS), len(builder.code) - unless - 1, 0)
                returns += _statements(builder, otherwise, base)
                builder.code[jump] = (int(Operation.JUMP), len(builder.code) - jump - 1, 0)
            case Return(value=value) if value is not None:
                before = builder.integers, builder.floats
                _emit(builder, _over_terms(builder, value))
                if value.type == Type.FLOAT:
                    builder.add(Operation.RETURN_F, base[1], base[0])
                else:
                    builder.add(Operation.RETURN_I, base[0], base[1])
                returns.append(len(builder.code))
                builder.add(Operation.JUMP)
                builder.integers, builder.floats = before  # of what follows, which this one does not reach
    return returns


def _over_terms(builder: _Builder, expression: Expression) -> Expression:
    """An expression of an action, with the events that it was given in place of parameters."""
    events = builder.frames[-1].events

    def change(node: Expression) -> Expression:
        match node:
            case LocalOf(slot=slot) if slot in events and node.type.kind is Kind.EVENT:
                return events[slot]
            case MemberOf(type=type_, receiver=EventOf(term=term), field=name):
                return FieldOf(type_, term, name)
        return node

    return with_exact_times(rewritten(expression, change))


def _is_about_keys(expression: Expression, terms: frozenset[int]) -> bool:
    """Whether an expression mentions keys and no events; an action may mention keys in its body."""
    return not terms and any(isinstance(node, KeyOf | Invoke) for node in walk(expression))


def _suffix(type_: Type | None) -> str:
    return "F" if type_ == Type.FLOAT else "I"


def _operand(builder: _Builder, expression: Expression, term: int, form: Form = Form.VALUE) -> None:
    if form is Form.VALUE and expression.type not in _STACKED:
        raise NotForKernel(f"a value of type {expression.type} in a condition")
    floating = form is Form.VALUE and expression.type == Type.FLOAT
    operands = builder.float_operands if floating else builder.integer_operands
    # Equal operands share a column. A field has one column for all types, so it is shared among
    # them as well.
    about, events = about_one_event(expression), builder.events[term]
    own = (events,) if isinstance(events, str) else events
    what = about, None if isinstance(about, FieldOf) else own[0], form
    number = builder.operand_numbers.setdefault(what, len(operands))
    if number == len(operands):
        operands.append(Operand(about, own, form))
    else:
        together = dict.fromkeys((*operands[number].events, *own))
        operands[number] = replace(operands[number], events=tuple(together))
    builder.add(Operation.PUSH_F if floating else Operation.PUSH_I, number, term)


def _constant(builder: _Builder, type_: Type, value: bool | float | str | Decimal, *, has_state: bool) -> None:
    state = 0
    if has_state:
        builder.integer_constants.append(1)  # it is written over by the search, as the constant is
        state = len(builder.integer_constants)
    if type_ == Type.FLOAT:
        builder.float_constants.append(float(value))
        builder.add(Operation.CONSTANT_F, len(builder.float_constants) - 1, state)
        return
    # A rank is known per batch only: `runtime.matching.kernel.columns` fills it in.
    is_ranked = isinstance(value, str | Decimal)
    if isinstance(value, str | Decimal):
        builder.ranked.append((len(builder.integer_constants), value))
    builder.integer_constants.append(0 if is_ranked else int(value))
    builder.add(Operation.CONSTANT_I, len(builder.integer_constants) - 1, state)


def _short_circuit(builder: _Builder, expression: Binary) -> None:
    """`and`, `or`: the right side is skipped where the left side decides; it may have no value."""
    _emit(builder, expression.left)
    skip, is_and = len(builder.code), expression.operator == "and"
    builder.add(Operation.SKIP_IF_FALSE)  # replaced below, when its length is known
    _emit(builder, expression.right)
    builder.add(Operation.AND if is_and else Operation.OR)
    kind = Operation.SKIP_IF_FALSE if is_and else Operation.SKIP_IF_TRUE
    builder.code[skip] = (int(kind), len(builder.code) - skip - 1, 0)


def _binary(builder: _Builder, expression: Binary) -> None:
    operator, type_ = expression.operator, expression.left.type
    if type_ in RANKED and not (
        _is_ranked(expression.left) and _is_ranked(expression.right) and operator in _COMPARISON
    ):
        text = "text put together" if type_ == Type.STRING else "decimals calculated"
        raise NotForKernel(f"{text} from several events in a condition")
    # There is no "greater": the sides are swapped. Their order does not matter, as neither has an
    # effect.
    swapped = operator in (">", ">=")
    for side in (expression.right, expression.left) if swapped else (expression.left, expression.right):
        _emit(builder, side)
    if operator == "xor":
        builder.add(Operation.DIFFERENT_I)
        return
    name = _ARITHMETIC.get(operator) or _COMPARISON[operator]
    builder.add(Operation[f"{name}_{_suffix(type_)}"])


def _is_ranked(expression: Expression) -> bool:
    """Whether a value is a column or a constant, so that its rank can represent it."""
    terms = terms_of(expression)
    return len(terms) == 1 or isinstance(expression, Literal) or _is_about_keys(expression, terms)

"""Expressions: the type that each has, or what is said about it."""

from __future__ import annotations

from decimal import Decimal

import pytest

from querylang.checker.expressions.inference import DEEPEST
from querylang.checker.scope import Scope
from querylang.plan.expression import Call, EventOf, FieldOf, Invoke, Items, Literal, MemberOf, New, Type
from tests.querylang.checker.probe import EVERY, NAMES, infer, reported

TYPES = {
    # literals
    "true": "boolean",
    "9223372036854775807": "integer",
    "-9223372036854775808": "integer",
    "1.5": "float",
    "1.5d": "decimal",
    '"x"': "string",
    "infinity": "float",
    "float.INFINITY": "float",
    "float.NAN": "float",
    "decimal.MAX": "decimal",
    "[1, 2]": "sequence<integer>",
    "[[1.0], []]": "sequence<sequence<float>>",
    '{"a": 1}': "dictionary<string,integer>",
    "new sequence<float>": "sequence<float>",
    "new dictionary<string, B>": "dictionary<string,B>",
    "new A": "A",
    # names and members
    "k": "string",
    "p": "float",
    "a": "A",
    "unset": "optional<A>",
    "a.n": "integer",
    "a.nested.m": "integer",
    "a.bs[0].m": "integer",
    "a.at.x1": "float",
    "a.xs[a.n]": "float",
    'a.counts["x"]': "integer",
    "A.MAX": "integer",
    "a.MAX": "integer",
    # operators
    "a.n + 1": "integer",
    "a.x * p": "float",
    "a.n + 1.5": "float",
    "1 - a.x": "float",
    "a.n % a.x": "float",
    "a.n <= 1.5": "boolean",
    "a.n != a.x": "boolean",
    "a.xs = [1, 2.5]": "boolean",
    "location(1, 2, 3.0, 4)": "location",
    "a.o.getOr(1)": "float",
    "a.d / 3.0d": "decimal",
    'a.s + "x"': "string",
    "a.n % 2 = 1": "boolean",
    "a.s < k": "boolean",
    "a = a": "boolean",
    "a.xs = []": "boolean",
    "[] != a.xs": "boolean",
    "a.bs = [B(1)]": "boolean",
    "a.b and not a.b or a.b xor a.b": "boolean",
    "-a.x": "float",
    # calls
    "a.toString()": "string",
    "a.clone()": "A",
    "a.getTime()": "float",
    "a.twice(3)": "integer",
    "a.nested.double()": "integer",
    "a.x.abs().floor()": "integer",
    "a.s.substring(1)": "string",
    "a.s.substring(1, 2)": "string",
    "a.xs.size()": "integer",
    'a.counts.getOrDefault("x", 3)': "integer",
    "a.counts.keys()": "sequence<string>",
    "a.o.getOr(1.0)": "float",
    "a.o.empty()": "boolean",
    "unset.getOrThrow().x": "float",
    'integer.parse("7")': "integer",
    "float.max(1.0, 2.0)": "float",
    'A.parse("A()")': "A",
    # constructors
    "B(1)": "B",
    ".B(1)": "B",
    "location(0.0, 0.0, 1.0, 1.0)": "location",
    "optional<float>(1.0)": "optional<float>",
    "optional<float>()": "optional<float>",
    "sequence<B>()": "sequence<B>",
}


@pytest.mark.parametrize(("text", "type_"), TYPES.items())
def test_the_type_of_an_expression(text: str, type_: str) -> None:
    value, mistakes = infer(text)
    assert (reported(mistakes), str(value and value.type)) == ("", type_)


MISTAKES = {
    # literals
    "9223372036854775808": "9223372036854775808: limit: this number does not fit integer",
    "100000000000000000000.0d": "100000000000000000000.0d: limit: this number does not fit decimal",
    "float.INFINITE": "INFINITE: unknown-name: float has no constant 'INFINITE'; did you mean 'INFINITY'?",
    "[]": "[]: type: the type of this empty sequence is not known: write `new sequence<...>`",
    "{}": "{}: type: the type of this empty dictionary is not known: write `new dictionary<..., ...>`",
    "[1, 2.0, 3]": "2.0: type: this is float, but those before are integer: all elements must have one type",
    '{"a": 1, 2: 2}': "2: type: this is integer, but those before are string: all keys must have one type",
    '{"a": 1, "b": "c"}': '"c": type: this is string, but those before are integer: all values must have one type',
    "new Bb": "Bb: unknown-type: unknown type 'Bb'; did you mean 'B'?",
    "new dictionary<B, float>": "B: type: the keys of a dictionary are of a simple type, not B",
    # names and members
    "pp": "pp: unknown-name: 'pp' is not a name of this pattern; did you mean 'p'?",
    "self.x": "self: not-in-queries: `self` cannot be used in a query: a query is not an event; "
    "use the pattern's names and the keys",
    "A": "A: type: 'A' is an event type, not a value: `A(...)` makes an event",
    "a.xx": "xx: unknown-field: 'A' has no field 'xx'; did you mean 'x'?",
    "a.getTime": "getTime: unknown-field: 'getTime' is an action of 'A': it is called with `getTime()`",
    "a.s.length": "length: unknown-field: 'length' is an action of string: it is called with `length()`",
    "a.at.x3": "x3: unknown-field: location has no member 'x3'; did you mean 'x2'?",
    "a.nested.at": "at: unknown-field: 'B' has no field 'at'; the time of an event is `.getTime()`",
    "a.nested.mm": "mm: unknown-field: 'B' has no field 'mm'; did you mean 'm'?",
    "A.MIX": "MIX: unknown-name: 'A' has no constant 'MIX'; did you mean 'MAX'?",
    "A.x": "x: unknown-name: 'A' has no constant 'x'; a field is read from an event, not from its type",
    "unset.x": "x: type: this may be unset: 'x' is read in `ifpresent` or behind `.getOrThrow()`",
    "a.n[0]": "a.n: type: `[...]` takes a sequence or a dictionary, not integer",
    'a.xs["0"]': '"0": type: an index must be integer, not string; convert the string with `.toInteger()`',
    "a.counts[0]": "0: type: a key of this dictionary must be string, not integer; convert the integer with `.toString()`",
    # operators
    "3 + 1.5d": "3 + 1.5d: type: `+` does not take integer and decimal; write the number as a decimal, `3d`",
    "a.d > 1.5": "a.d > 1.5: type: `>` does not take decimal and float; write the number as a decimal, `1.5d`",
    "k + 1": "k + 1: type: `+` does not take string and integer; convert the integer with `.toString()`",
    "a.o + 1.0": "a.o + 1.0: type: `+` does not take optional<float> and float; what may be unset is read in `ifpresent` "
    "or with `.getOrThrow()`",
    "a < a": "a < a: type: `<` does not take A and A",
    "a.xs = [a.n]": "a.xs = [a.n]: type: `=` does not take sequence<float> and sequence<integer>",
    "not a.s": "not a.s: type: `not` does not take string",
    # calls
    "a.siz()": "siz: unknown-method: 'A' has no method 'siz'",
    "a.xs.siz()": "siz: unknown-method: sequence<float> has no method 'siz'; did you mean 'size'?",
    "a.toSTring()": "toSTring: unknown-method: 'A' has no method 'toSTring'; did you mean 'toString'?",
    "a.twise(1)": "twise: unknown-method: 'A' has no method 'twise'; did you mean 'twice'?",
    "a.n.formatFixed(2)": "formatFixed: unknown-method: integer has no method 'formatFixed';"
    " convert the integer with `.toFloat()`",
    "a.x()": "x: unknown-method: 'x' is a field of 'A': it is read without `()`",
    "a.twice()": "twice: argument-count: 'twice' takes 1 argument, not 0",
    "a.twice(1.5)": "1.5: type: 'k' of 'twice' must be integer, not float; convert the float with `.toInteger()`",
    "a.s.substring()": "substring: argument-count: 'substring' takes 1 to 2 arguments, not 0",
    "a.s.toUpper(1)": "toUpper: argument-count: 'toUpper' takes no arguments, not 1",
    "a.s.find(1)": "1: type: the argument of 'find' must be string, not integer; convert the integer with `.toString()`",
    "a.nothing()": "nothing: type: 'nothing' returns nothing, so it has no value",
    "a.xs.append(1.0)": "append: type: 'append' returns nothing, so it has no value",
    "unset.getTime()": "getTime: type: this may be unset: 'getTime' is read in `ifpresent` or behind `.getOrThrow()`",
    'integer.pars("7")': "pars: unknown-method: the type 'integer' has no method 'pars'; did you mean 'parse'?",
    'string.length("7")': "length: unknown-method: the type 'string' has no method 'length'; it is called on a value",
    "foo(1)": "foo: unknown-function: unknown action or event type 'foo'",
    "cuont()": "cuont: unknown-function: unknown action or event type 'cuont'; did you mean 'count'?",
    # constructors
    "B()": "B: argument-count: 'B' takes 1 argument, not 0",
    'B("x")': "\"x\": type: 'm' of 'B' must be integer, not string; convert the string with `.toInteger()`",
    "location(0.0)": "location: argument-count: 'location' takes 4 arguments, not 1",
    "optional<float>(a.n)": "a.n: type: what it holds must be float, not integer; convert the integer with `.toFloat()`",
    "integer(1.5)": "integer: unknown-function: a value of type integer is not made with `integer(...)`; write `.toInteger()`",
    # aggregates
    "avg(a.x)": "avg: aggregate: an aggregate like `avg` can be used only in `select` and `having` of a `find every`",
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.items())
def test_what_is_said_about_an_expression(text: str, message: str) -> None:
    value, mistakes = infer(text)
    assert (reported(mistakes), value) == (message, None)


AGGREGATES = {
    "avg(a.x)": "float",
    "sum(a.n) + 1": "integer",
    "count()": "integer",
    "count(a.x > p)": "integer",
    "last(a.s) + k": "string",
    "first(a).x": "float",
    "percentile(a.x, 50.0)": "float",
    "nth(a.d, 3)": "decimal",
    "com.apama.aggregates.max(a.x) > p": "boolean",
}


@pytest.mark.parametrize(("text", "type_"), AGGREGATES.items())
def test_the_type_of_an_aggregate(text: str, type_: str) -> None:
    value, mistakes = infer(text, EVERY)
    assert (reported(mistakes), str(value and value.type)) == ("", type_)


AGGREGATE_MISTAKES = {
    "avg(sum(a.x))": "sum: aggregate: `sum` cannot be used in an aggregate: an aggregate takes plain expressions",
    "avg(a.s)": "avg(a.s): type: the aggregate `avg` does not take string",
    "wavg(a.x, a.s)": "wavg(a.x, a.s): type: the aggregate `wavg` does not take float and string",
    "avg()": "avg: argument-count: 'avg' takes 1 argument, not 0",
    "count(1, 2)": "count: argument-count: 'count' takes 0 to 1 arguments, not 2",
    "av(a.x)": "av: unknown-function: unknown action or event type 'av'; did you mean 'avg'?",
}


@pytest.mark.parametrize(("text", "message"), AGGREGATE_MISTAKES.items())
def test_what_is_said_about_an_aggregate(text: str, message: str) -> None:
    value, mistakes = infer(text, EVERY)
    assert (reported(mistakes), value) == (message, None)


@pytest.mark.parametrize(
    "text",
    ["open", "open.x", "open.f(1)", "open + 1", "[open, open]", "not open", "a.twice(open)", "B(open)", "open = []"],
)
def test_nothing_is_said_of_what_is_open(text: str) -> None:
    assert infer(text) == (None, [])


@pytest.mark.parametrize(
    "text", ["a.y + 1", "a.y.z", "a.y() + 1.5 > 3", "[a.y, 1]", "B(a.y).m", "a.twice(a.y)", "a.xs[a.y]", "a.y = []"]
)
def test_a_mistake_is_told_once(text: str) -> None:
    assert len(infer(text)[1]) == 1


def test_each_part_tells_its_own_mistake() -> None:
    _value, mistakes = infer("a.y + [1, 2.0][0] > B(true).mm")
    assert [mistake.code for mistake in mistakes] == ["unknown-field", "type", "type"]


def test_an_action_that_is_an_expression_becomes_it_on_a_bound_event() -> None:
    assert infer("a.getTime()")[0] == FieldOf(Type.FLOAT, 0, "x")


def test_an_action_with_parameters_is_called() -> None:
    event = EventOf(Type.event("A"), 0)
    assert infer("a.twice(1)")[0] == Invoke(Type.INTEGER, "twice", event, (Literal(Type.INTEGER, 1),))


def test_an_action_of_an_event_that_is_no_term_is_called() -> None:
    nested = FieldOf(Type.event("B"), 0, "nested")
    assert infer("a.nested.double()")[0] == Invoke(Type.INTEGER, "double", nested, ())


def test_a_field_of_an_event_that_is_a_value_is_a_member() -> None:
    nested = FieldOf(Type.event("B"), 0, "nested")
    assert infer("a.nested.m")[0] == MemberOf(Type.INTEGER, nested, "m")


def test_a_conversion_to_the_same_type_is_nothing() -> None:
    assert infer("a.s.toString()")[0] == FieldOf(Type.STRING, 0, "s")


def test_a_method_of_a_type_has_its_first_argument_as_receiver() -> None:
    one, two = Literal(Type.FLOAT, 1.0), Literal(Type.FLOAT, 2.0)
    assert infer("float.max(1.0, 2.0)")[0] == Call(Type.FLOAT, "float.max", one, (two,))


def test_constants_of_events_are_literals() -> None:
    assert infer("A.MAX")[0] == Literal(Type.INTEGER, 7)


def test_constants_of_events_have_methods() -> None:
    assert infer("A.MAX.toFloat()")[0] == Call(Type.FLOAT, "toFloat", Literal(Type.INTEGER, 7))


def test_a_plain_value_becomes_an_optional_where_one_is_wanted() -> None:
    value, _mistakes = infer("[optional<float>(), 1.0]")
    type_ = Type.optional(Type.FLOAT)
    assert value == Items(Type.sequence(type_), (New(type_, ()), New(type_, (Literal(Type.FLOAT, 1.0),))))


def test_decimals_are_rounded_to_18_places() -> None:
    assert infer("0.1234567890123456785d")[0] == Literal(Type.DECIMAL, Decimal("0.123456789012345678"))


def test_an_event_made_empty_has_a_value_for_each_field() -> None:
    assert infer("new B")[0] == New(Type.event("B"), (Literal(Type.INTEGER, 0),))


@pytest.mark.parametrize(
    "text", ["not " * DEEPEST + "true", "1.5" + " + 1.5" * DEEPEST, "a.twice(" * DEEPEST + "1" + ")" * DEEPEST]
)
def test_an_expression_that_is_too_deep_is_one_mistake(text: str) -> None:
    value, mistakes = infer(text)
    assert [mistake.code for mistake in mistakes] == ["limit"]
    assert value is None


def test_a_name_hides_the_event_type_of_that_name() -> None:
    scope = Scope({"B": NAMES["a"]})
    assert infer("B.x", scope) == (FieldOf(Type.FLOAT, 0, "x"), [])


def test_unknown_names_are_no_mistake_where_names_are_missing() -> None:
    assert infer("zz.x + zz", Scope({}, is_whole=False)) == (None, [])

"""Instances: values given to parameters, and what comes of them in the plan."""

from __future__ import annotations

import pickle
import random
from decimal import Decimal
from typing import Any

import pytest

from querylang import InputError, InstanceError, bind, compile_text, instances_of
from querylang.parameters import Given, with_instances
from querylang.plan.expression import Literal, ParameterOf, Type, walk
from querylang.plan.model import Plan, QueryPlan, Within, to_dict
from querylang.plan.text import INPUT_NAMES, Names, expression_text, statement_lines


def template(parameters: str, rest: str = "inputs { A() within 3; } find A as a") -> QueryPlan:
    text = f"event A {{ integer x; float v; string s; boolean b; decimal d; }} query Q {{ parameters {{ {parameters} }} {rest} }}"
    return compile_text(text).plan.queries[0]


def value_of(type_: str, given: Any) -> Any:
    """What a parameter of that type makes of a value."""
    (parameter,) = bind(template(f"{type_} p;"), {"p": given}).parameters
    assert parameter.default is not None
    return parameter.default.value


VALUES = [
    ("boolean", True, True),
    ("integer", 3, 3),
    ("integer", -(2**63), -(2**63)),
    ("float", 3, 3.0),
    ("float", 1.5, 1.5),
    ("string", "x", "x"),
    ("string", "", ""),
    ("decimal", "1.50", Decimal("1.5")),
    ("decimal", "1.5d", Decimal("1.5")),
    ("decimal", 0.1, Decimal("0.1")),
    ("decimal", 3, Decimal(3)),
    ("decimal", Decimal("-0.000000000000000001"), Decimal("-0.000000000000000001")),
]


@pytest.mark.parametrize(("type_", "given", "expected"), VALUES)
def test_values(type_: str, given: Any, expected: Any) -> None:
    value = value_of(type_, given)
    assert value == expected
    assert type(value) is type(expected)


WRONG = [
    ("boolean", 1, "boolean, not the integer 1"),
    ("boolean", "true", "boolean, not the string 'true'"),
    ("integer", 1.0, "integer, not the float 1.0"),
    ("integer", True, "integer, not the boolean True"),
    ("integer", "3", "integer, not the string '3'"),
    ("integer", 2**63, "integer: 9223372036854775808 does not fit 64 bits"),
    ("float", "1.5", "float, not the string '1.5'"),
    ("float", False, "float, not the boolean False"),
    ("float", 10**400, "float: this number does not fit a float"),
    ("float", None, "float, not nothing"),
    ("string", 3, "string, not the integer 3"),
    ("decimal", "x", "decimal, not the string 'x'"),
    ("decimal", "1e20", "decimal: 1E+20 is too large for a decimal"),
    ("decimal", float("inf"), "decimal: Infinity is too large for a decimal"),
    ("decimal", True, "decimal, not the boolean True"),
    ("string", ["a"], "string, not a list"),
]


@pytest.mark.parametrize(("type_", "given", "expected"), WRONG)
def test_wrong_values_say_what_is_wanted_and_what_was_found(type_: str, given: Any, expected: str) -> None:
    with pytest.raises(InstanceError) as caught:
        bind(template(f"{type_} p;"), {"p": given}, "eu")
    assert str(caught.value) == f"query 'Q', instance 'eu': parameter 'p' must be {expected}"


def test_a_value_that_is_missing() -> None:
    with pytest.raises(InstanceError) as caught:
        bind(template("float p; integer n;"), {"n": 3})
    assert str(caught.value) == "query 'Q': parameter 'p' has no value; it is float"


def test_a_value_that_no_parameter_takes() -> None:
    with pytest.raises(InstanceError) as caught:
        bind(template("float period;"), {"perod": 3.0}, "us")
    assert str(caught.value) == "query 'Q', instance 'us': unknown parameter 'perod'; did you mean 'period'?"


def test_a_value_for_a_query_without_parameters() -> None:
    plan = compile_text("inputs { A() within 3; } find A as a").plan.queries[0]
    with pytest.raises(InstanceError) as caught:
        bind(plan, {"p": 3.0})
    assert str(caught.value) == "query 'query': unknown parameter 'p'; it has no parameters"


def test_defaults_stand_for_what_is_not_given() -> None:
    bound = bind(template("float p := 1.5; integer n := 3;"), {"n": 4})
    assert [parameter.default for parameter in bound.parameters] == [Literal(Type.FLOAT, 1.5), Literal(Type.INTEGER, 4)]


def test_the_instance_without_values() -> None:
    assert instances_of(template("float p;")) == ()
    (only,) = instances_of(template("float p := 2.0;", "inputs { A() within p; } find A as a"))
    assert only.inputs[0].within == 2_000_000
    plain = compile_text("inputs { A() within 3; } find A as a").plan.queries[0]
    assert instances_of(plain) == (plain,)


def test_an_instance_has_its_name() -> None:
    bound = bind(template("float p;"), {"p": 1.0}, "eu")
    assert (bound.name, bound.instance, bound.title) == ("Q", "eu", "Q/eu")


EVERYTHING = """
    inputs { A(x > n, v in [p : q), b = c) key s within p * 2.0 retain n + 1 wait q.max(p); }
    find wait(p) as t -> A as a -> A as a2 -> wait(n)
        where a.x > n and a2.v < q
        within p + q
        within n between (t a)
        without A as w where w.s = name
    { print name; if c { f(n); } }
    action f(integer k) { print (k + n).toString(); }"""


def test_no_parameter_is_left_anywhere() -> None:
    query = template("float p; float q; integer n; boolean c; string name;", EVERYTHING)
    bound = bind(query, {"p": 1.0, "q": 2.5, "n": 3, "c": True, "name": "x"})
    assert "ParameterOf" not in str(to_dict(Plan((), (bound,))))
    assert "ParameterOf" in str(to_dict(Plan((), (query,))))


def test_durations_and_counts_become_numbers() -> None:
    query = template("float p; float q; integer n; boolean c; string name;", EVERYTHING)
    bound = bind(query, {"p": 1.0, "q": 2.5, "n": 3, "c": True, "name": "x"})
    (item,) = bound.inputs
    assert (item.within, item.retain, item.wait) == (2_000_000, 4, 2_500_000)
    assert bound.leading is not None
    assert bound.trailing is not None
    assert (bound.leading.duration, bound.trailing.duration) == (1_000_000, 3_000_000)
    assert [item.duration for item in bound.conditions if isinstance(item, Within)] == [3_500_000, 3_000_000]


def test_expressions_and_statements_hold_the_values() -> None:
    query = template("float p; float q; integer n; boolean c; string name;", EVERYTHING)
    bound = bind(query, {"p": 1.0, "q": 2.5, "n": 3, "c": False, "name": "x"})
    assert bound.inputs[0].filter is not None
    assert expression_text(bound.inputs[0].filter, INPUT_NAMES) == "x > 3 and (v >= 1.0 and v < 2.5) and b = false"
    assert statement_lines(bound.block, Names.of(bound)) == ['print "x"', "if false {", "    f(3)", "}"]
    assert statement_lines(bound.actions[0].body, Names()) == ["print (v1 + 3).toString()"]


@pytest.mark.parametrize(("low", "high"), [(1.0, 2.5), (2.5, 1.0)])
def test_a_reversed_range_is_turned_round(low: float, high: float) -> None:
    query = template("float p; float q;", "inputs { A(v in [p : q)) within 3; } find A as a")
    found = bind(query, {"p": low, "q": high}).inputs[0].filter
    assert found is not None
    assert expression_text(found, INPUT_NAMES) == "v >= 1.0 and v < 2.5"
    assert not any(isinstance(node, ParameterOf) for node in walk(found))


NO_LENGTHS = [
    ("inputs { A() within p; } find A as a", 0.0, "`within` of 'A' must be greater than 0, but is 0.0 seconds"),
    ("inputs { A() within 3 wait p; } find A as a", -1.0, "`wait` of 'A' must be greater than 0, but is -1.0 seconds"),
    (
        "inputs { A() retain p.toInteger(); } find A as a",
        0.5,
        "`retain` of 'A' must be greater than 0, but is 0",
    ),
    (
        "inputs { A() within 3; } find wait(p) -> A as a",
        0.0,
        "the `wait` at the beginning of the pattern must be greater than 0, but is 0.0 seconds",
    ),
    (
        "inputs { A() within 3; } find A as a -> wait(p)",
        0.0000001,
        "the `wait` at the end of the pattern must be greater than 0, but is 1e-07 seconds",
    ),
    (
        "inputs { A() within 3; } find A as a within p - 1.0",
        1.0,
        "`within` of the pattern must be greater than 0, but is 0.0 seconds",
    ),
    (
        "inputs { A() within p; } find A as a",
        float("inf"),
        "`within` of 'A' must not be longer than 100,000 years, but is inf seconds",
    ),
    (
        "inputs { A() within 3 / p.toInteger(); } find A as a",
        0.0,
        "`within` of 'A' has no value: it divides by zero",
    ),
    (
        "inputs { A() retain p.toInteger(); } find A as a",
        float("nan"),
        "`retain` of 'A' has no value: nan is not an integer",
    ),
]


@pytest.mark.parametrize(("rest", "given", "expected"), NO_LENGTHS)
def test_values_that_leave_no_window_or_wait(rest: str, given: float, expected: str) -> None:
    with pytest.raises(InstanceError) as caught:
        bind(template("float p;", rest), {"p": given}, "eu")
    assert str(caught.value) == f"query 'Q', instance 'eu': {expected}"


def test_instance_errors_are_input_errors_that_travel() -> None:
    error = pickle.loads(pickle.dumps(InstanceError("query 'Q': no")))
    assert isinstance(error, InputError)
    assert str(error) == "query 'Q': no"


def test_an_instance_is_bound_again_with_its_own_values() -> None:
    bound = bind(template("float p; integer n := 3;"), {"p": 1.0}, "eu")
    assert bind(bound, {}, "eu") == bound


SHARED = [
    (
        "integer least; integer most;",
        "inputs { A(x >= least and x <= most) within 3; } find A as a where a.x + most > least",
    ),
    ("float f; integer n := 3;", "inputs { A(v > f) retain n; } find A as a -> A as b where b.v > a.v - f and a.x < n"),
    ("integer p; boolean b; float f;", "inputs { A() within f; } find A as a where (b and p > 3) or a.x = p"),
    (
        "string s; sequence<integer> xs;",
        "inputs { A(x in xs) within 3; } find A as a where a.s.contains(s) { print s; }",
    ),
    (
        "integer p; decimal d;",
        "inputs { A() within 3; } find every A as a where a.d > d select sum(a.x * p) as t having t > p",
    ),
    ("integer p; integer q;", "inputs { A(x in [p : q]) within 3; } find A as a where p < q or a.x > p"),
]


@pytest.mark.parametrize(("parameters", "rest"), SHARED)
def test_many_instances_are_those_of_each_by_itself(parameters: str, rest: str) -> None:
    text = f"event A {{ integer x; float v; string s; boolean b; decimal d; }} query Q {{ parameters {{ {parameters} }} {rest} }}"
    plan, chance = compile_text(text).plan, random.Random(rest)
    kinds: dict[str, Any] = {"integer": lambda: chance.randrange(1, 9), "boolean": lambda: chance.random() < 0.5}
    kinds |= {
        "float": lambda: chance.choice([1.5, 2.0]),
        "string": lambda: chance.choice("ab"),
        "decimal": lambda: "1.5",
    }
    kinds["sequence<integer>"] = lambda: [chance.randrange(5) for _ in range(chance.randrange(3))]
    (query,) = plan.queries
    values = {f"i{n}": {item.name: kinds[str(item.type)]() for item in query.parameters} for n in range(40)}
    found = with_instances(plan, Given({"Q": values})).queries
    assert found == tuple(bind(query, own, name) for name, own in values.items())

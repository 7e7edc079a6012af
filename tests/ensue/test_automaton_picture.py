"""The picture of an automaton: texts that neither overlap nor get lost, whatever is in them."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ensue.rendering.explanation import MOST_TRANSITIONS, RADIUS, _labels, _places, automaton_svg, program_svg
from querylang import InputError, compile_paths, compile_text
from querylang.plan.describe import MATCH, Edge, Graph, graph_of

QUERIES = sorted((Path(__file__).parent.parent / "querylang" / "plan" / "explain").glob("*.query"))
LOOP = Graph("L", (), ("0", "1", MATCH), (Edge("0", "1", ("a",)), Edge("1", "1", ("b",)), Edge("1", MATCH, ("c",))))
BACK = Graph("B", ("x",), ("0", "1", MATCH), (Edge("0", "1", ("a",)), Edge("1", "0", ("b",)), Edge("1", MATCH, ("c",))))
GRAPHS = [*(graph_of(query) for path in QUERIES for query in compile_paths([path]).plan.queries), LOOP, BACK]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.title)
def test_texts_and_states_do_not_overlap(graph: Graph) -> None:
    places = _places(graph)
    labels = _labels(graph.edges, places)
    assert {label.edge for label in labels} == set(graph.edges)
    boxes = [*places.values(), *(label.box for label in labels)]
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.title)
def test_transitions_lead_to_the_right_unless_they_lead_back(graph: Graph) -> None:
    places = _places(graph)
    assert max(places.values(), key=lambda box: box.x) == places[MATCH]
    if graph not in (LOOP, BACK):
        assert all(places[edge.source].x + 2 * RADIUS < places[edge.target].x for edge in graph.edges)


def test_text_of_users_is_text_in_the_picture() -> None:
    line = '<b> & "\x1b[31m\u202e\x00'
    root = ElementTree.fromstring(automaton_svg(Graph(line, (line,), ("0", MATCH), (Edge("0", MATCH, (line,)),))))
    shown = [item.text for item in root.iter("{http://www.w3.org/2000/svg}text")]
    assert shown.count('<b> & "\\x1b[31m\\u202e\\x00') == 3


def test_an_automaton_that_nobody_can_read_is_refused() -> None:
    edges = tuple(Edge("0", MATCH, (str(number),)) for number in range(MOST_TRANSITIONS + 1))
    with pytest.raises(InputError, match="251 transitions, more than the 250 that can be drawn; `--dot` prints it"):
        automaton_svg(Graph("Q", (), ("0", MATCH), edges))


PROGRAM = "event S {} event A {} event B {} event C {}" + "".join(
    f" query {name} {{ inputs {{ {takes}() within 9.0; }} find {takes} as x {{ {routes} }} }}"
    for name, takes, routes in [
        ("First", "S", "route A(); route B();"),
        ("Second", "A", "route C();"),
        ("Third", "B", 'send C() to "com.apama.queries";'),
        ("Last", "C", ""),
        ("Apart", "S", 'print "x";'),
    ]
)


def test_a_program_shows_who_feeds_whom_from_left_to_right() -> None:
    root = ElementTree.fromstring(program_svg(compile_text(PROGRAM).plan.queries))
    shown = {item.text: float(item.attrib["x"]) for item in root.iter("{http://www.w3.org/2000/svg}text")}
    assert shown.keys() == {"First", "Second", "Third", "Last", "A", "B", "C"}
    assert shown["First"] < shown["A"] < shown["Second"] == shown["Third"] < shown["C"] < shown["Last"]
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) == 5  # four routes, and the tip

"""A row pattern to the text of a query, where both find the same matches in the same rows.

A row pattern begins at the leftmost row and takes as many rows as it can. A query fires at the
earliest end and takes the most recent events. Both find the same matches if from each row on the
pattern can be read in one way only, and if no match lies within another. That is so if

- the pattern begins with one row, and its end has a fixed number of rows;
- beside a part of variable length no row can belong to both parts: their conditions exclude each
  other, whatever was before.

A pattern whose parts all have a fixed length needs neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from shlex import quote

from ensue.importing.expressions import ROW, Writer, comparisons, of_one_row, with_previous
from ensue.importing.row_patterns import (
    Comparison,
    Element,
    NotTranslatedError,
    RowPattern,
    as_name,
    exclude_each_other,
)
from ensue.importing.sql_reader import MOST_BRACKETS, line_of, line_too_deep, read
from querylang.errors import FileErrors, QueryErrors
from querylang.formatter.formatting import format_text
from querylang.load import check_text
from querylang.syntax.lexer import KEYWORDS

_EVER = "36500 days"

_OPEN_END = (
    "a query fires at the first {last} that completes the pattern, where SQL takes as many as it can:"
    " end the pattern with a variable for the row behind them"
)
_BOTH = (
    "a row may be {one} and {other}: SQL gives {one} all it can, a query takes the most recent rows."
    " Let their conditions exclude each other"
)


def translate(text: str, path: str, name: str) -> str:
    """A `MATCH_RECOGNIZE` clause as the text of a query file.

    path: of the SQL text, for messages
    name: of the query
    Raises FileErrors with all lines that would not mean the same, and why.
    """
    try:
        return _translated(text, path, name)
    except NotTranslatedError as error:
        raise FileErrors(path, [(error.line, error.why)]) from None
    except RecursionError:
        why = f"this is nested too deeply; {MOST_BRACKETS} brackets in each other are still translated"
        raise FileErrors(path, [(line_too_deep(text), why)]) from None


def _translated(text: str, path: str, name: str) -> str:
    pattern = with_previous(_with_fixed_end(read(text)))
    names = _names(pattern)
    found = [*_other_meanings(pattern, names)]
    parts: list[tuple[int, str]] = []
    for write in (_conditions, _selects):
        try:
            parts += write(pattern, names)
        except NotTranslatedError as error:
            found.append((error.line, error.why))
    if found:
        raise FileErrors(path, sorted(set(found)))
    query = _query(pattern, names, name, [part for _, part in parts])
    if why := _mistake(query):
        wrong = [(line, _mistake(_query(pattern, names, name, [part]))) for line, part in parts]
        found = sorted({item for item in wrong if item[1]}) or [(pattern.elements[0].line, why)]
        raise FileErrors(path, [(line, f"the query would have a mistake: {why}") for line, why in found])
    return format_text(query, path)


def _mistake(query: str) -> str:
    """The first mistake of a query text; "" = none."""
    try:
        check_text(query)
    except QueryErrors as error:
        return error.errors[0].message
    return ""


def _with_fixed_end(pattern: RowPattern) -> RowPattern:
    """A last part that takes as few rows as it can takes its least number, always."""
    *before, last = pattern.elements
    if last.is_reluctant and last.least:
        last = replace(last, most=last.least, is_reluctant=False)
    return replace(pattern, elements=(*before, last))


def _names(pattern: RowPattern) -> Mapping[str, str]:
    """Names of the query by variable: in lower case, and none that means something else."""
    taken = {*KEYWORDS, *pattern.keys, *(name for name, _ in pattern.measures)}
    found: dict[str, str] = {}
    variables = [item.variable.lower() for item in pattern.elements]
    for item, name in zip(pattern.elements, variables, strict=True):
        written = name
        while written in taken or written in found.values() or (written != name and written in variables):
            written += "_row"
        found[item.variable] = written
    return found


def _other_meanings(pattern: RowPattern, names: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Lines that would mean something else, and why."""
    known = {element.variable for element in pattern.elements}
    for variable in pattern.conditions:
        if variable not in known:
            yield pattern.elements[0].line, f"{variable} is defined, but not in the pattern"
    yield from _of_skip(pattern)
    if pattern.is_fixed:
        return
    first, last = pattern.elements[0], pattern.elements[-1]
    if not first.is_single:
        yield first.line, f"a pattern of variable length must begin with one row, not with several {first.variable}"
    if not last.is_fixed:
        yield last.line, _OPEN_END.format(last=last.variable)
    for one, other in _neighbours(pattern.elements):
        if not _exclude(pattern, names, one, other):
            yield other.line, _BOTH.format(one=one.variable, other=other.variable)


def _neighbours(elements: tuple[Element, ...]) -> Iterator[tuple[Element, Element]]:
    """Parts that may follow each other directly, where a row could belong to either."""
    for position, one in enumerate(elements):
        for other in elements[position + 1 :]:
            if position and not (one.is_fixed and other.is_fixed and elements.index(other) == position + 1):
                yield one, other
            if other.least:
                break


def _exclude(pattern: RowPattern, names: Mapping[str, str], one: Element, other: Element) -> bool:
    return exclude_each_other(*(_comparisons(pattern, names, item) for item in (one, other)))


def _comparisons(pattern: RowPattern, names: Mapping[str, str], item: Element) -> list[Comparison]:
    condition = pattern.conditions.get(item.variable)
    if condition is None:
        return []
    writer = Writer(pattern, {**names, item.variable: ROW}, item)
    return list(comparisons(writer, of_one_row(pattern, item, condition)))


def _of_skip(pattern: RowPattern) -> Iterator[tuple[int, str]]:
    """A skip that would let the next match end before the one that was found."""
    skip = pattern.skip
    if not skip.variable:
        return
    position = pattern.position(skip.variable.upper())
    if position is None:
        yield skip.line, f"{skip.variable} is not a variable of the pattern"
        return
    target, behind = pattern.elements[position], pattern.elements[position + 1 :]
    if not target.least:
        yield skip.line, f"AFTER MATCH SKIP TO {skip.variable} is not translated: {skip.variable} may have no row"
    elif not all(element.is_fixed for element in (*behind, *([target] if skip.to == "first" else []))):
        yield skip.line, f"AFTER MATCH SKIP TO {skip.variable} is translated where a fixed number of rows follows"
    elif _least(pattern.elements) < _least(behind) + (target.least if skip.to == "first" else 1) + 1:
        yield skip.line, f"AFTER MATCH SKIP TO {skip.variable} is translated where rows of a match come before it"


def _least(elements: Iterable[Element]) -> int:
    return sum(element.least for element in elements)


def _conditions(pattern: RowPattern, names: Mapping[str, str]) -> list[tuple[int, str]]:
    """Clauses with their lines in the SQL text."""
    found = []
    for element in pattern.elements:
        condition = pattern.conditions.get(element.variable)
        if condition is not None:
            found.append((line_of(condition), f"where {Writer(pattern, names, element).text(condition)}"))
    return [*found, *([(pattern.elements[0].line, f"within {pattern.within}")] if pattern.within else [])]


def _selects(pattern: RowPattern, names: Mapping[str, str]) -> list[tuple[int, str]]:
    writer = Writer(pattern, names)
    return [
        (line := line_of(node), f"select {writer.text(node)} as {as_name(name, line)}")
        for name, node in pattern.measures
    ]


def _query(pattern: RowPattern, names: Mapping[str, str], name: str, parts: list[str]) -> str:
    keys = ", ".join(as_name(key, 1) + ("?" if key in pattern.null_keys else "") for key in pattern.keys)
    window = _window(pattern)
    steps = " => ".join(_step(pattern, names, element) for element in pattern.elements)
    find = "find all" if pattern.skip.to == "next row" and not pattern.is_fixed else "find"
    skip = {"past last row": "after match skip past last event", "next row": ""}.get(pattern.skip.to)
    if skip is None:
        skip = f"after match skip to {pattern.skip.to} {names[pattern.skip.variable.upper()]}"
    lines = "\n".join(f"        {part}" for part in (*parts, skip) if part)
    return (
        f"// Rows are ordered by their column {pattern.order}:"
        f" ensue replay FILE.query TABLE --arrival {quote(pattern.order)}\n"
        f"{_DEFAULT_SKIP if pattern.skip.is_default else ''}"
        f"query {name} {{\n    inputs {{ {as_name(pattern.table, 1)}(){keys and f' key {keys}'} {window}; }}\n    {find} {steps}\n{lines}\n    ;\n}}\n"
    )


_DEFAULT_SKIP = """\
// There is no AFTER MATCH: this is the default of the SQL standard, SKIP PAST LAST ROW.
// Flink's default is SKIP TO NEXT ROW.
"""


def _window(pattern: RowPattern) -> str:
    """What rows are kept: what a match may need, which has no end where the SQL text sets none."""
    if pattern.within:
        return f"within {pattern.within}"
    if pattern.is_fixed:
        return f"retain {sum(element.least for element in pattern.elements)}"
    return f"within {_EVER}"


def _step(pattern: RowPattern, names: Mapping[str, str], element: Element) -> str:
    step = f"{as_name(pattern.table, 1)} as {names[element.variable]}"
    if element.is_single:
        return step
    return f"{step} {_count(element)} consecutive"


def _count(element: Element) -> str:
    match element.least, element.most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case least, most if least == most:
            return f"{{{least}}}"
        case least, most:
            return f"{{{least},{'' if most is None else most}}}"

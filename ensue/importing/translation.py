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

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ensue.importing.exclusion import exclude_each_other
from ensue.importing.expressions import Writer, comparisons
from ensue.importing.row_patterns import Element, NotTranslatedError, RowPattern
from ensue.importing.sql_reader import read
from querylang.errors import FileErrors
from querylang.formatter.formatting import format_text
from querylang.syntax.tokens import KEYWORDS

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
    """The text of a query file.

    path: of the SQL text, for messages
    name: of the query
    Raises FileErrors with all lines that would not mean the same, and why.
    """
    try:
        pattern = _with_fixed_end(read(text))
    except NotTranslatedError as error:
        raise FileErrors(path, [(error.line, error.why)]) from None
    names = _names(pattern)
    found = [*_other_meanings(pattern, names)]
    parts: list[str] = []
    for write in (_conditions, _selects):
        try:
            parts += write(pattern, names)
        except NotTranslatedError as error:
            found.append((error.line, error.why))
    if found:
        raise FileErrors(path, sorted(set(found)))
    return format_text(_query(pattern, names, name, parts), path)


def _with_fixed_end(pattern: RowPattern) -> RowPattern:
    """A last part that takes as few rows as it can takes its least number, always."""
    *before, last = pattern.elements
    if last.is_reluctant and last.least:
        last = replace(last, most=last.least, is_reluctant=False)
    return replace(pattern, elements=(*before, last))


def _names(pattern: RowPattern) -> Mapping[str, str]:
    """Names of the query by variable: in lower case, and none that means something else."""
    taken = {*KEYWORDS, *pattern.keys, *(name for name, _ in pattern.measures)}
    return {
        item.variable: f"{name}_row" if (name := item.variable.lower()) in taken else name for item in pattern.elements
    }


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
    first, second = (
        list(comparisons(Writer(pattern, {**names, item.variable: "$"}, item), pattern.conditions.get(item.variable)))
        for item in (one, other)
    )
    return exclude_each_other(first, second)


def _of_skip(pattern: RowPattern) -> Iterator[tuple[int, str]]:
    skip, last = pattern.skip, pattern.elements[-1]
    if skip.variable and (
        skip.variable.upper() != last.variable or len(pattern.elements) < 2 or not _has_more(pattern)
    ):
        yield skip.line, f"AFTER MATCH SKIP TO {skip.variable} is translated for the last variable of several only"


def _has_more(pattern: RowPattern) -> bool:
    """Whether the last part is never the whole match."""
    return any(element.least for element in pattern.elements[:-1])


def _conditions(pattern: RowPattern, names: Mapping[str, str]) -> list[str]:
    found = []
    for element in pattern.elements:
        condition = pattern.conditions.get(element.variable)
        if condition is not None:
            found.append(f"where {Writer(pattern, names, element).text(condition)}")
    return [*found, *([f"within {pattern.within}"] if pattern.within else [])]


def _selects(pattern: RowPattern, names: Mapping[str, str]) -> list[str]:
    writer = Writer(pattern, names)
    return [f"select {writer.text(node)} as {name}" for name, node in pattern.measures]


def _query(pattern: RowPattern, names: Mapping[str, str], name: str, parts: list[str]) -> str:
    keys = f" key {', '.join(pattern.keys)}" if pattern.keys else ""
    window = _window(pattern)
    steps = " => ".join(_step(pattern, names, element) for element in pattern.elements)
    find = "find all" if pattern.skip.to == "next row" and not pattern.is_fixed else "find"
    skip = {"past last row": "after match skip past last event", "next row": ""}.get(pattern.skip.to)
    if skip is None:
        skip = f"after match skip to {pattern.skip.to} {names[pattern.elements[-1].variable]}"
    lines = "\n".join(f"        {part}" for part in (*parts, skip) if part)
    return (
        f"// Rows are ordered by their column {pattern.order}: ensue replay FILE.query TABLE --arrival {pattern.order}\n"
        f"{_DEFAULT_SKIP if pattern.skip.is_default else ''}"
        f"query {name} {{\n    inputs {{ {pattern.table}(){keys} {window}; }}\n    {find} {steps}\n{lines}\n    ;\n}}\n"
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
    step = f"{pattern.table} as {names[element.variable]}"
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

"""Small changes of product code that a test should notice: where they are possible, and where a listed one is today."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("querylang", "runtime", "job_engine", "spark_backend", "ensue")

_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_OPERATIONS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_KERNELS = {"kernel", "inlined", "borrowing"}


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one line of a function.

    package: where the function is; another one is searched if it has moved
    function: its qualified name, without its module: modules are merged and moved
    before, after: the line without its indentation
    occurrence: which of the function's lines with this text, from 1
    operator: what kind of change it is
    """

    package: str
    function: str
    before: str
    after: str
    occurrence: int
    operator: str


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a change is in the tree.

    line: from 1
    start, end: columns of what the change replaces; both 0 where they are not asked for
    is_statement: a whole statement is replaced, not an expression
    in_kernel: the function is compiled, unless plain Python is asked for
    """

    path: Path
    line: int
    start: int
    end: int
    is_statement: bool
    in_kernel: bool


def possible_changes(package: str, root: Path = ROOT) -> Iterator[tuple[Change, Spot]]:
    """All changes of a package, in the order of paths and lines. What is only a text, a type or a default is left out."""
    for path in sorted((root / package).rglob("*.py")):
        text = path.read_text("utf-8")
        lines = text.splitlines()
        for name, function in functions(ast.parse(text)):
            in_kernel = any(isinstance(each, ast.Name) and each.id in _KERNELS for each in function.decorator_list)
            for node in _own_nodes(function):
                if node.lineno != node.end_lineno or not lines[node.lineno - 1].isascii():
                    continue
                line = lines[node.lineno - 1]
                for operator, new in _changes_of(node, line):
                    changed = f"{line[: node.col_offset]}{new}{line[node.end_col_offset :]}"
                    number = _occurrence(lines, function, node.lineno)
                    change = Change(package, name, line.strip(), changed.strip(), number, operator)
                    is_statement = isinstance(node, ast.stmt)
                    yield (
                        change,
                        Spot(path, node.lineno, node.col_offset, node.end_col_offset or 0, is_statement, in_kernel),
                    )


def find(change: Change, root: Path = ROOT) -> Spot | None:
    """Where a change's line is now; None if it is nowhere, or in several places."""
    packages = (change.package, *(other for other in PACKAGES if other != change.package))
    for by_name in (True, False):
        for package in packages:
            found = list(_spots(change, root / package, by_name=by_name))
            if len(found) == 1:
                return found[0]
    return None


def apply(change: Change, spot: Spot) -> None:
    """Write the change into its file."""
    lines = spot.path.read_text("utf-8").splitlines(keepends=True)
    lines[spot.line - 1] = lines[spot.line - 1].replace(change.before, change.after, 1)
    spot.path.write_text("".join(lines), "utf-8")


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """All functions of a module with their qualified names, without `<locals>`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", node
            yield from functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        else:
            yield from functions(node, prefix)


def _spots(change: Change, folder: Path, *, by_name: bool) -> Iterator[Spot]:
    """The lines of a package that a change fits: in functions of its name, or in any."""
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text("utf-8")
        if change.before not in text:
            continue
        lines = text.splitlines()
        for name, function in functions(ast.parse(text)):
            if by_name and name != change.function:
                continue
            in_kernel = any(isinstance(each, ast.Name) and each.id in _KERNELS for each in function.decorator_list)
            for number in range(function.lineno, (function.end_lineno or 0) + 1):
                fits = lines[number - 1].strip() == change.before
                if fits and _occurrence(lines, function, number) == change.occurrence:
                    yield Spot(path, number, 0, 0, is_statement=False, in_kernel=in_kernel)


def _occurrence(lines: list[str], function: ast.FunctionDef | ast.AsyncFunctionDef, number: int) -> int:
    """The how many-th line of a function with its text the line of this number is."""
    text = lines[number - 1].strip()
    return sum(lines[each - 1].strip() == text for each in range(function.lineno, number + 1))


def _own_nodes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """What a function does when it runs: no annotations, defaults, patterns, assertions or inner functions."""
    body = node.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else [node]
    for each in body:
        yield from _nodes(each)


def _nodes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    if isinstance(
        node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.JoinedStr | ast.pattern | ast.Assert
    ):
        return
    if isinstance(node, ast.If | ast.While):
        node.test.is_condition = True  # type: ignore[attr-defined]
    if isinstance(node, ast.expr | ast.stmt):
        yield node
    for name, value in ast.iter_fields(node):
        if name == "annotation":
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield from _nodes(each)


def _changes_of(node: ast.expr | ast.stmt, line: str) -> Iterator[tuple[str, str]]:
    """What can be changed of one node: the kind of change, and the node's new text."""

    def text(part: ast.expr) -> str:
        return line[part.col_offset : part.end_col_offset]

    whole = line[node.col_offset : node.end_col_offset]
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            old, new = _COMPARISONS[type(operator)]
            between = line[left.end_col_offset : right.col_offset]
            changed = between.replace(old, new, 1)
            yield "comparison", whole[: len(text(left))] + changed + whole[len(text(left)) + len(between) :]
        case ast.Constant(value=bool()):
            yield "constant", str(not node.value)
        case ast.Constant(value=int()) if whole.isdecimal():
            yield "constant", str(node.value + 1)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "negation", f"({text(operand)})"
        case ast.BoolOp(values=[first, second]) if line[first.end_col_offset : second.col_offset].strip() in {
            "and",
            "or",
        }:
            old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            between = line[first.end_col_offset : second.col_offset].replace(old, new)
            cut = first.end_col_offset - node.col_offset
            yield "connective", f"({whole[:cut]}{between}{line[second.col_offset : node.end_col_offset]})"
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATIONS:
            old, new = _OPERATIONS[type(operator)]
            between = line[left.end_col_offset : right.col_offset]
            cut = left.end_col_offset - node.col_offset
            yield (
                "operation",
                f"{whole[:cut]}{between.replace(old, new, 1)}{line[right.col_offset : node.end_col_offset]}",
            )
        case ast.IfExp(test=test, body=body, orelse=other):
            yield "branches", f"{text(other)} if {text(test)} else {text(body)}"
        case ast.Call(func=ast.Name(id=name), args=[_, *_]) if name in _NAMES:
            yield "function", _NAMES[name] + whole[len(name) :]
        case ast.Call(args=[first, second, *_]) if not isinstance(first, ast.Starred) and text(first) != text(second):
            if not isinstance(second, ast.Starred):
                start, end = first.col_offset - node.col_offset, second.end_col_offset - node.col_offset
                between = line[first.end_col_offset : second.col_offset]
                yield "arguments", f"{whole[:start]}{text(second)}{between}{text(first)}{whole[end:]}"
        case ast.Return(value=value) if value is not None and text(value) != "None":
            yield "answer", "return None"
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise():
            yield "statement", "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement", "pass"
        case ast.Continue():
            yield "statement", "break"
        case ast.Break():
            yield "statement", "continue"
        case _:
            pass
    if (
        isinstance(node, ast.expr)
        and getattr(node, "is_condition", False)
        and not isinstance(node, ast.Compare | ast.UnaryOp)
    ):
        yield "condition", f"not ({whole})"

"""Check blocks and actions: statements of the text become statements of the plan.

Local variables become slots. A statement with a mistake is left out and the rest is still checked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import assert_never

from querylang.checker.expressions import literals
from querylang.checker.expressions.inference import Inference, assigned_target
from querylang.checker.namespaces import ActionSignature, EventSchema, Namespace
from querylang.checker.scope import Scope, type_of
from querylang.checker.statements import DEEPEST, always_returns, changed_names, declared_names, simple_statement
from querylang.dataclass import dataclass, field, replace
from querylang.errors import Mistake, QueryError
from querylang.plan import model as plan
from querylang.plan.expression import Call, EventOf, Expression, Kind, LocalOf, MemberOf, Type
from querylang.plan.lookups import lookups_in
from querylang.plan.model import Action
from querylang.source import Span
from querylang.syntax import ast

Statements = tuple[plan.Statement, ...]


@dataclass(frozen=True, slots=True)
class CheckedBlock:
    """The statements of a block, and the number of slots of its local variables."""

    statements: Statements
    slots: int


@dataclass(slots=True)
class _Checking:
    """What all statements of a block or action share. `action` None: the block of a `find`."""

    namespace: Namespace
    action: ActionSignature | None
    slots: int = 0
    is_too_deep: bool = False

    def report(self, mistake: Mistake, span: Span, **facts: str | int) -> None:
        self.namespace.diagnostics.report(mistake, span, **facts)

    def report_depth(self, span: Span) -> None:
        """Report once that statements are nested too deeply."""
        if not self.is_too_deep:
            self.report(Mistake.STATEMENTS_TOO_DEEP, span, limit=DEEPEST)
        self.is_too_deep = True

    def local(self, type_: Type) -> LocalOf:
        """A new variable."""
        self.slots += 1
        return LocalOf(type_, self.slots - 1)


def check_block(block: ast.Block, scope: Scope, namespace: Namespace) -> CheckedBlock:
    """The block of a `find`. An event that the block changes is copied first."""
    checking = _Checking(namespace, None)
    copies: dict[str, Expression | None] = {}
    prelude: list[plan.Statement] = []
    for name in changed_names(block):
        event = scope.names.get(name)
        if isinstance(event, EventOf) and event.type.kind is Kind.EVENT:
            copies[name] = copy = checking.local(event.type)
            prelude.append(plan.Assign(copy, Call(event.type, "clone", event)))
    inside = _Block(checking, scope.with_names(copies), set(scope.names))
    return CheckedBlock((*prelude, *inside.statements(block)), checking.slots)


def check_body(
    body: ast.Block,
    action: ActionSignature,
    scope: Scope,
    namespace: Namespace,
    slots: int,
    declared: Collection[str],
) -> CheckedBlock:
    """The body of an action.

    - `slots`: how many are in use by the event and the parameters.
    - `declared`: the names of the parameters.
    """
    checking = _Checking(namespace, action, slots)
    statements = _Block(checking, scope, set(declared)).statements(body)
    return CheckedBlock(statements, checking.slots)


def refused_lookup(bodies: Mapping[str, Action], name: ast.Name, forms: Mapping[str, Expression]) -> QueryError | None:
    """The mistake of an action that looks something up and does more than return an expression.

    `forms`: the actions that become an expression where they are called.
    """
    if name.text in forms or not any(lookups_in(bodies[name.text].body)):
        return None
    return QueryError.of(Mistake.TABLE_IN_ACTION, name.span, name=name.text)


@dataclass(slots=True)
class _Block:
    """One block. `declared`: the names that it declares, which it cannot declare again."""

    checking: _Checking
    scope: Scope
    declared: set[str] = field(default_factory=set)
    level: int = 1
    is_loop: bool = False

    def statements(self, block: ast.Block) -> Statements:
        """The block's statements, one after the other."""
        if self.level > DEEPEST:
            self.checking.report_depth(block.span)
            return ()
        later = [name for name in declared_names(block) if name not in self.scope.names]
        self.scope = replace(
            self.scope,
            names=dict(self.scope.names),
            forbidden={**self.scope.forbidden, **dict.fromkeys(later, Mistake.DECLARED_LATER)},
        )
        return tuple(checked for statement in block.statements for checked in self._statement(statement))

    def _statement(self, node: ast.Statement) -> Statements:
        match node:
            case ast.Declaration():
                return self._declaration(node)
            case ast.Assignment():
                return self._assignment(node)
            case ast.If():
                return self._if(node)
            case ast.IfPresent():
                return self._if_present(node)
            case ast.While():
                condition = self._condition(node.condition)
                body = self._inner(node.body, is_loop=True)
                return () if condition is None else (plan.While(condition, body),)
            case ast.For():
                return self._for(node)
            case ast.Block() | ast.VendorCustom(body=ast.Block()):
                return self._inner(node if isinstance(node, ast.Block) else node.body)
            case ast.Break():
                return self._jump(node.span, "break", plan.Break())
            case ast.Continue():
                return self._jump(node.span, "continue", plan.Continue())
            case ast.Return():
                return self._return(node)
            case ast.Refused(span=span, what=what, reason=reason):
                self.checking.report(Mistake.NOT_IN_QUERIES, span, what=what, reason=reason)
                return ()
            case ast.Broken(span=span):
                self._ignore_names_in(span)
                return ()
            case ast.Print() | ast.Log() | ast.Send() | ast.Emit() | ast.Route() | ast.VendorSend() | ast.Evaluation():
                checked = simple_statement(node, self._inference)
                return () if checked is None else (checked,)
        assert_never(node)

    def _ignore_names_in(self, span: Span) -> None:
        """Ignore unknown names that a part which could not be parsed may have declared.

        The part begins after the statement before the mistake.
        """
        text = span.source.text
        begin = 1 + max(text.rfind(mark, 0, span.start) for mark in ";{}")
        names = re.findall(r"[^\W\d]\w*", text[begin : span.end])
        self.scope = replace(self.scope, ignored=self.scope.ignored.union(names))

    @property
    def _inference(self) -> Inference:
        return Inference(self.scope, self.checking.namespace)

    def _condition(self, node: ast.Expression) -> Expression | None:
        return self._inference.value_of_type(node, Type.BOOLEAN, "a condition")

    def _inner(self, block: ast.Block, *, is_loop: bool = False) -> Statements:
        return _Block(self.checking, self.scope, set(), self.level + 1, self.is_loop or is_loop).statements(block)

    def _inner_with(
        self, block: ast.Block, names: dict[str, Expression | None], *, is_loop: bool = False
    ) -> Statements:
        """An inner block with names of its own."""
        scope = self.scope.with_names(names)
        return _Block(self.checking, scope, set(names), self.level + 1, self.is_loop or is_loop).statements(block)

    # Names

    def _declaration(self, node: ast.Declaration) -> Statements:
        type_ = self.checking.namespace.type_of(node.type)
        value = self._initial(node, type_)
        local = None if type_ is None else self.checking.local(type_)
        self._declare(node.name, local)
        return () if local is None or value is None else (plan.Assign(local, value),)

    def _initial(self, node: ast.Declaration, type_: Type | None) -> Expression | None:
        """The value of a declaration; it does not see the declared name yet."""
        if type_ is None:
            return None if node.value is None else self._inference.check_untyped(node.value)
        if node.value is None:
            return literals.default(self._inference, type_, node.type.span)
        return self._inference.value_of_type(node.value, type_, f"'{node.name.text}'")

    def _declare(self, name: ast.Name, local: LocalOf | None) -> None:
        if name.text in self.declared:
            self.checking.report(Mistake.DECLARED_TWICE, name.span, name=name.text)
            return
        self.declared.add(name.text)
        names = self.scope.names
        assert isinstance(names, dict), "a block has names of its own"
        names[name.text] = local

    def _assignment(self, node: ast.Assignment) -> Statements:
        target = assigned_target(node.target, self._inference)
        if target is None:
            self._inference.check_untyped(node.value)
            return ()
        value = self._inference.value_of_type(node.value, type_of(target), "what is assigned")
        return () if value is None else (plan.Assign(target, value),)

    # Statements that nest others

    def _if(self, node: ast.If) -> Statements:
        condition = self._condition(node.condition)
        then = self._inner(node.then)
        otherwise = () if node.otherwise is None else self._inner(node.otherwise)
        return () if condition is None else (plan.If(condition, then, otherwise),)

    def _if_present(self, node: ast.IfPresent) -> Statements:
        names: dict[str, Expression | None] = {}
        values: list[Expression] = []
        slots: list[int] = []
        for expression, name in node.bindings:
            value = self._optional(expression)
            if name.text in names:
                self.checking.report(Mistake.DECLARED_TWICE, name.span, name=name.text)
            local = None if value is None else self.checking.local(type_of(value).of[0])
            names[name.text] = local
            if value is not None and local is not None:
                values.append(value)
                slots.append(local.slot)
        then = self._inner_with(node.then, names)
        otherwise = () if node.otherwise is None else self._inner(node.otherwise)
        return (plan.IfPresent(tuple(values), tuple(slots), then, otherwise),)

    def _optional(self, node: ast.Expression) -> Expression | None:
        value = self._inference.value(node)
        if value is None or type_of(value).kind is Kind.OPTIONAL:
            return value
        self.checking.report(Mistake.NOT_OPTIONAL, node.span, found=str(value.type))
        return None

    def _for(self, node: ast.For) -> Statements:
        """A loop over an existing variable, as in the vendor's language, or one with its own."""
        sequence, name = self._sequence(node.sequence), node.name
        if sequence is None:
            self._inner_with(node.body, {name.text: None}, is_loop=True)
            return ()
        element = type_of(sequence).of[0]
        known = self.scope.names.get(name.text)
        if not isinstance(known, LocalOf):
            local = self.checking.local(element)
            return (plan.For(local.slot, sequence, self._inner_with(node.body, {name.text: local}, is_loop=True)),)
        if known.type != element:
            facts = {"what": f"'{name.text}'", "expected": str(element), "found": str(known.type)}
            self.checking.report(Mistake.EXPECTED_TYPE, name.span, **facts)
        return (plan.For(known.slot, sequence, self._inner(node.body, is_loop=True)),)

    def _sequence(self, node: ast.Expression) -> Expression | None:
        value = self._inference.value(node)
        if value is None or type_of(value).kind is Kind.SEQUENCE:
            return value
        mistake = QueryError.of(Mistake.NOT_A_SEQUENCE, node.span, found=str(value.type))
        is_dictionary = type_of(value).kind is Kind.DICTIONARY
        return self._inference.report(mistake.with_hint("take its `.keys()` or `.values()`" if is_dictionary else None))

    def _jump(self, span: Span, word: str, statement: plan.Statement) -> Statements:
        if not self.is_loop:
            self.checking.report(Mistake.NOT_IN_LOOP, span, word=word)
        return (statement,)

    def _return(self, node: ast.Return) -> Statements:
        action = self.checking.action
        if node.value is None:
            if action is not None and action.returns is not None:
                facts = {"name": action.name, "type": str(action.returns)}
                self.checking.report(Mistake.RETURN_VALUE, node.span, **facts)
            return (plan.Return(None),)
        if action is not None and action.returns is not None:
            what = f"what '{action.name}' returns"
            value = self._inference.value_of_type(node.value, action.returns, what)
            return () if value is None else (plan.Return(value),)
        self._inference.check_untyped(node.value)
        if action is None or not action.is_open:
            what = "the block of a `find`" if action is None else f"'{action.name}'"
            self.checking.report(Mistake.NOTHING_TO_RETURN, node.value.span, what=what)
        return ()


# Actions: first their signatures, then their bodies. They may call each other and themselves; the
# runtime limits the steps of a run.


def signatures(nodes: Iterable[ast.ActionDefinition], namespace: Namespace) -> dict[str, ActionSignature]:
    """The signatures of a query's actions, by name; reports duplicate names."""
    found: dict[str, ActionSignature] = {}
    for node in nodes:
        if node.name.text in found:
            namespace.diagnostics.report(Mistake.DUPLICATE_ACTION, node.name.span, name=node.name.text)
        found.setdefault(node.name.text, signature(node, namespace))
    return found


def signature(node: ast.ActionDefinition, namespace: Namespace) -> ActionSignature:
    """The signature of an action; reports unknown types and duplicate parameters."""
    seen: set[str] = set()
    for parameter in node.parameters:
        name = parameter.name
        if name.text in seen:
            namespace.diagnostics.report(Mistake.DUPLICATE_PARAMETER, name.span, name=name.text)
        seen.add(name.text)
    parameters = tuple((item.name.text, namespace.type_of(item.type)) for item in node.parameters)
    returns = None if node.returns is None else namespace.type_of(node.returns)
    return ActionSignature(node.name.text, parameters, returns, is_open=node.returns is not None and returns is None)


def check_actions(
    nodes: Iterable[ast.ActionDefinition],
    known: Mapping[str, ActionSignature],
    scope: Scope,
    namespace: Namespace,
    owner: Type | None = None,
) -> tuple[Action, ...]:
    """The actions of a query or of the event type `owner`, in order, each name once.

    `scope`: the scope of their bodies.
    """
    checked: dict[str, Action] = {}
    for node in nodes:
        if node.name.text not in checked:
            checked[node.name.text] = _checked(node, known[node.name.text], scope, namespace, owner)
    return tuple(checked.values())


def event_scope(schema: EventSchema) -> Scope:
    """The scope of an event type's actions: its fields, constants and actions, and `self`."""
    event = LocalOf(schema.type, 0)
    names: dict[str, Expression | None] = dict(schema.constants)
    names.update({item.name: MemberOf(item.type, event, item.name) for item in schema.fields})
    return Scope(
        names={**names, "self": event},
        actions={action.name: action for action in schema.actions},
        owner=event,
        unknown=Mistake.UNKNOWN_NAME_OF_EVENT,
        is_whole=not schema.is_open or schema.untyped is not None,
        ignored=frozenset(schema.untyped or ()),
    )


def _checked(
    node: ast.ActionDefinition, known: ActionSignature, scope: Scope, namespace: Namespace, owner: Type | None
) -> Action:
    first = 0 if owner is None else 1
    parameters: dict[str, Expression | None] = {}
    for slot, (name, type_) in enumerate(known.parameters, start=first):
        parameters.setdefault(name, None if type_ is None else LocalOf(type_, slot))
    slots = first + len(known.parameters)
    body = check_body(node.body, known, scope.with_names(parameters), namespace, slots, declared=parameters)
    if known.returns is not None and not always_returns(node.body):
        facts = {"name": known.name, "type": str(known.returns)}
        namespace.diagnostics.report(Mistake.RETURN_MISSING, node.name.span, **facts)
    types = tuple(type_ for _name, type_ in known.parameters if type_ is not None)
    return Action(known.name, types, body.slots, known.returns, body.statements)

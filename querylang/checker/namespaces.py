"""Event types as texts and data define them, and what names of types mean in one text.

A name without a package is searched in the text's own package, in its `using`s, outside of all
packages, then anywhere. A leading dot searches only outside of packages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from querylang.checker.checked import Diagnostics
from querylang.dataclass import dataclass, field
from querylang.errors import Mistake, QueryError, nearest
from querylang.foreign_words import TYPES, hint_of
from querylang.plan.expression import SIMPLE, Expression, FieldOf, Kind, Literal, Type
from querylang.plan.library import TIME_FORMAT
from querylang.plan.model import Action, EventType, Field, Table
from querylang.source import Span
from querylang.syntax import ast


@dataclass(frozen=True, slots=True)
class ActionSignature:
    """How an action is called.

    - `parameters`: names and types; None: the type could not be resolved, and nothing more is
      reported about it.
    - `returns`: None with `is_open` False: it returns nothing.
    - `inline`: the expression over the event as term 0 that a call becomes
      (`querylang.checker.expressions.calls`).
    - `problems`: mistakes in the body of an action of a definition file, reported if it is called.
    """

    name: str
    parameters: tuple[tuple[str, Type | None], ...] = ()
    returns: Type | None = None
    is_open: bool = False
    inline: Expression | None = None
    problems: tuple[QueryError, ...] = ()


@dataclass(frozen=True, slots=True)
class EventSchema:
    """An event type.

    - `name`: the plan's name; short, unless types of two packages share it.
    - `time_from`, `heartbeat`: the arguments of the annotations, as the definition's text writes
      them.
    - `is_open`: not all members are known. `untyped`: the fields whose types are not known; None:
      there may be any members.
    - `is_unseen`: nothing defines it, and no data of it is known.
    - `bodies`: the actions for the plan.
    """

    name: str
    fields: tuple[Field, ...] = ()
    constants: tuple[tuple[str, Literal | None], ...] = ()
    actions: tuple[ActionSignature, ...] = ()
    bodies: tuple[Action, ...] = ()
    time_from: str | None = None
    heartbeat: str | None = None
    out_of_order: bool = False
    is_open: bool = False
    untyped: tuple[str, ...] | None = None
    is_unseen: bool = False
    package: str = ""
    span: Span | None = field(default=None, compare=False)
    type: Type = field(init=False, repr=False, compare=False)
    _fields: Mapping[str, FieldOf] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Remember the fields' types by name; of equal names the first one counts."""
        fields = {item.name: FieldOf(item.type, 0, item.name) for item in reversed(self.fields)}
        object.__setattr__(self, "_fields", fields)
        object.__setattr__(self, "type", Type.event(self.name))

    @property
    def qualified_name(self) -> str:
        """The name with its package, which may be written anywhere."""
        short = self.name.rpartition(".")[2]
        return f"{self.package}.{short}" if self.package else self.name

    @property
    def field_names(self) -> list[str]:
        """The fields' names in order."""
        return [item.name for item in self.fields]

    @property
    def event_type(self) -> EventType:
        """The event type for the plan."""
        return EventType(self.name, self.fields, self.bodies, self.time_from, self.heartbeat, self.out_of_order)

    def may_have(self, name: str) -> bool:
        """Whether an unknown member of that name may exist; then it is not reported."""
        return self.is_open and (self.untyped is None or name in self.untyped)

    def type_of(self, name: str) -> Type | None:
        """The type of a field; None if there is no such field."""
        known = self._fields.get(name)
        return None if known is None else known.type

    def field_of(self, name: str) -> FieldOf | None:
        """A field of the event as term 0; None if there is no such field."""
        return self._fields.get(name)

    def action(self, name: str) -> ActionSignature | None:
        """The action of that name; None if there is no such action."""
        return next((item for item in self.actions if item.name == name), None)


DEEPEST_TYPE = 20
"""Levels of a type: `sequence<sequence<float>>` has three."""

_WORDS = {str(type_): type_ for type_ in SIMPLE}
_GENERIC = {str(Kind.SEQUENCE): 1, str(Kind.DICTIONARY): 2, str(Kind.OPTIONAL): 1}

_SHORT_TIME_FORMAT = TIME_FORMAT.rpartition(".")[2]


_DEFINE = "define it: where some event types are defined, all have to be"


@dataclass(slots=True)
class EventTypes:
    """The event types of a set of texts: those defined, those of data, those that are only used.

    - `data`: the fields of types that come with data.
    - `is_final`: types that nothing defines have no fields; otherwise their fields are open.
    - `names`: all names from definitions and data, as texts may write them.
    - `tables`: those beside the stream, by name.
    - `broken_tables`: the names of those that have mistakes.
    """

    data: Mapping[str, Mapping[str, Type]]
    is_final: bool
    schemas: dict[str, EventSchema] = field(default_factory=dict)
    plan_names: dict[str, str] = field(default_factory=dict)
    by_short_name: dict[str, list[str]] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    broken_tables: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Add TimeFormat and the types of the data; a definition of the same name replaces one."""
        self.plan_names[TIME_FORMAT] = TIME_FORMAT
        self.schemas[TIME_FORMAT] = EventSchema(TIME_FORMAT)
        for name, fields in self.data.items():
            self.name(name, name)
            self.schemas[name] = EventSchema(name, tuple(Field(item, type_) for item, type_ in fields.items()))

    @property
    def has_unseen(self) -> bool:
        """Whether a type is used that nothing defines."""
        return any(schema.is_unseen for schema in self.schemas.values())

    @property
    def suggested(self) -> Sequence[str]:
        """The names to suggest for a misspelt one."""
        return [*self.names, _SHORT_TIME_FORMAT]

    def name(self, qualified: str, plan_name: str) -> None:
        """Make a type known under its qualified name; its schema follows."""
        if qualified not in self.plan_names:
            self.by_short_name.setdefault(qualified.rpartition(".")[2], []).append(qualified)
        self.plan_names[qualified] = plan_name
        self.names.update({qualified.rpartition(".")[2]: None, qualified: None})

    def add_unseen(self, schema: EventSchema) -> None:
        """Add a type that is only used; its name is never suggested."""
        self.by_short_name.setdefault(schema.name.rpartition(".")[2], []).append(schema.name)
        self.plan_names[schema.name] = schema.name
        self.schemas[schema.name] = schema

    def of(self, type_: Type) -> EventSchema:
        """The schema of an event type of this set."""
        return self.schemas[type_.name]


@dataclass(frozen=True, slots=True)
class Namespace:
    """Resolves names of types in one text.

    - `is_strict`: the text has definitions, so an unknown type is a mistake.
    - `diagnostics`: where mistakes in the text are reported.
    - `used`: the plan's names of the event types that were resolved, in order.
    """

    types: EventTypes
    package: str
    usings: tuple[ast.Using, ...]
    is_strict: bool
    diagnostics: Diagnostics
    used: dict[str, None] = field(default_factory=dict)

    def find(self, name: ast.Name) -> EventSchema | None:
        """The event type of that name; None if there is a mistake, which is reported."""
        found = self.candidates(name.text)
        if len(found) > 1:
            first, second = found[:2]
            words = {"name": name.text, "first": first, "second": second}
            self.diagnostics.report(Mistake.AMBIGUOUS_EVENT, name.span, **words)
            return None
        if not found and self.is_strict:
            self.diagnostics.add(self.unknown(name))
            return None
        schema = self.types.schemas[self.types.plan_names[found[0]]] if found else self._unseen(name)
        self.used[schema.name] = None
        return schema

    def unknown(self, name: ast.Name) -> QueryError:
        """The mistake of a name that no event type has."""
        plain = QueryError.of(Mistake.UNKNOWN_EVENT, name.span, name=name.text)
        found = plain.suggesting(name.text, self.types.names)
        return plain.with_hint(_DEFINE) if found.message == plain.message and self.types.names else found

    def candidates(self, text: str) -> list[str]:
        """The qualified names that a name may mean: one, none, or several with equal precedence."""
        known = self.types.plan_names
        if text.startswith("."):
            return [text[1:]] if text[1:] in known else []
        if "." in text:
            return [text] if text in known else []
        exact = [using.name.text for using in self.usings if not using.is_all]
        packages = [using.name.text for using in self.usings if using.is_all]
        for near in (
            [_joined(self.package, text)],
            [name for name in exact if name.rpartition(".")[2] == text],
            [_joined(package, text) for package in packages],
            [text],
            self.types.by_short_name.get(text, []),
            [TIME_FORMAT] if text == _SHORT_TIME_FORMAT else [],
        ):
            found = [name for name in dict.fromkeys(near) if name in known]
            if found:
                return found
        return []

    def is_time_format(self, text: str) -> bool:
        """Whether a name means TimeFormat, and not a type that a text defines under that name."""
        return [self.types.plan_names[name] for name in self.candidates(text)] == [TIME_FORMAT]

    def type_of(self, node: ast.TypeName) -> Type | None:
        """The written type; None if there is no such type, which is reported."""
        if _is_deep(node):
            self.diagnostics.report(Mistake.TYPE_TOO_DEEP, node.span, limit=DEEPEST_TYPE)
            return None
        return self._type(node)

    def of(self, type_: Type) -> EventSchema:
        """The schema of an event type."""
        return self.types.of(type_)

    def _type(self, node: ast.TypeName) -> Type | None:
        expected = _GENERIC.get(node.word, 0)
        assert len(node.of) == expected, "the grammar counts the types between `<` and `>`"
        if node.word in _WORDS:
            return _WORDS[node.word]
        if not expected:
            return self._event(node)
        inner = [self._type(item) for item in node.of]
        types = tuple(type_ for type_ in inner if type_ is not None)
        if len(types) < len(inner):
            return None
        if node.word == Kind.DICTIONARY and types[0] not in SIMPLE:
            self.diagnostics.report(Mistake.KEY_OF_DICTIONARY, node.of[0].span, found=str(types[0]))
            return None
        return Type(Kind(node.word), types)

    def _event(self, node: ast.TypeName) -> Type | None:
        name = ast.Name(node.word, node.span)
        if not self.candidates(node.word) and (self.is_strict or _is_misspelt(node.word)):
            known = [*_WORDS, *_GENERIC, *self.types.suggested]
            mistake = QueryError.of(Mistake.UNKNOWN_TYPE, node.span, name=node.word)
            hint = hint_of(TYPES, node.word)
            self.diagnostics.add(mistake.suggesting(node.word, known) if hint is None else mistake.with_hint(hint))
            return None
        schema = self.find(name)
        return None if schema is None else schema.type

    def _unseen(self, name: ast.Name) -> EventSchema:
        """A type that nothing defines; it is stored, so that its name means the same everywhere."""
        text = name.text.removeprefix(".")
        known = self.types.names
        if nearest(text, known) is not None:
            warning = QueryError.of(Mistake.UNSEEN_EVENT, name.span, name=text)
            self.diagnostics.warnings.append(warning.suggesting(text, known))
        schema = EventSchema(text, is_open=not self.types.is_final, is_unseen=True)
        self.types.add_unseen(schema)
        return schema


def path_of(node: ast.Expression | None) -> ast.Name | None:
    """The name that a dotted expression spells, `com.example.A`; None for other expressions."""
    words: list[ast.Name] = []
    while isinstance(node, ast.Member):
        words.append(node.name)
        node = node.receiver
    if not isinstance(node, ast.NameUse):
        return None
    words = [node.name, *reversed(words)]
    return ast.Name(".".join(word.text for word in words), words[0].span.until(words[-1].span))


def _is_misspelt(word: str) -> bool:
    """Whether a word means a built-in type, like `integr`: event types begin with a capital."""
    return word[:1].islower() and nearest(word, [*_WORDS, *_GENERIC]) is not None


def _joined(package: str, name: str) -> str:
    return f"{package}.{name}" if package else name


def _is_deep(node: ast.TypeName) -> bool:
    level: list[ast.TypeName] = [node]
    for _ in range(DEEPEST_TYPE):
        level = [inner for item in level for inner in item.of]
        if not level:
            return False
    return True

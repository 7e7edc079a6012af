"""All errors that users see, and the catalogue of mistakes in query texts: codes and messages.

An error in a query text prints itself as `path:line:column: code: message`, with the source line
and carets. All errors can be pickled, because workers raise them. `InputError` is for everything
outside of query texts.
"""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import Enum, IntEnum
from functools import lru_cache
from heapq import nlargest
from itertools import islice, pairwise
from pathlib import Path
from typing import ClassVar

from querylang.printable import one_line, words
from querylang.source import Span
from querylang.system_limits import can_be, is_folder

_PACKAGES = frozenset({"querylang", "runtime", "job_engine", "spark_backend", "ensue"})


class ExitCode(IntEnum):
    """What a command ends with; a service is started again where that may help."""

    DONE = 0
    INPUT = 1
    """The user's input is wrong, or a check found a difference."""

    USAGE = 2
    OURS = 3
    """Ensue itself failed."""

    PASSES = 4
    """What ended the command may be over by itself."""


class EnsueError(Exception):
    """The base of all errors that users see.

    exit_code: of a command that it ends
    """

    exit_code: ClassVar[ExitCode] = ExitCode.INPUT

    def _render_traceback_(self, *_shown: object) -> list[str]:
        """What notebooks show in place of a traceback: the user's own line, then the message.

        IPython asks each exception for a method of this name.
        """
        from traceback import format_tb

        own, next_ = None, self.__traceback__
        while next_ is not None and next_.tb_frame.f_globals.get("__name__", "").partition(".")[0] not in _PACKAGES:
            own, next_ = next_, next_.tb_next
        place = [] if own is None else format_tb(own, 1)
        return [line for part in (*place, f"{type(self).__name__}: {self}") for line in part.splitlines()]


class InputError(EnsueError):
    """A table, file, setting or state is wrong: one clear line."""

    def __str__(self) -> str:
        """The line; what acts on a terminal is escaped, line ends too."""
        return one_line(super().__str__())


@contextmanager
def in_words(of_user: Callable[[str], str]) -> Iterator[None]:
    """What a call raises and warns of has other words for what its user types.

    of_user: puts a message into these words
    """
    before = words.set(of_user)
    try:
        yield
    except InputError as error:
        error.args = tuple(of_user(part) if isinstance(part, str) else part for part in error.args)
        raise
    finally:
        words.reset(before)


class PassingError(InputError):
    """Nothing in the input is wrong: what it says may be over by itself, or when there is room."""

    exit_code = ExitCode.PASSES


_PASSING = frozenset(
    {
        errno.EADDRINUSE,
        errno.EAGAIN,
        errno.EDQUOT,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
"""What the system says of disks, servers of files and memory that may soon have what is missing."""


def is_passing(error: BaseException) -> bool:
    """Whether the system failed at a file, which says nothing about the file itself.

    Such a file is neither gone nor damaged: who asked for it has to ask again.
    """
    return isinstance(error, OSError) and (error.errno in _PASSING or isinstance(error, ConnectionError))


class FileErrors(InputError):
    """All mistakes of a file other than a query text.

    `found`: per mistake the line, if known, and the message.
    """

    def __init__(self, path: str, found: Sequence[tuple[int | None, str]]) -> None:
        super().__init__(path, tuple(found))
        self.path = path
        self.found = tuple(found)

    def __str__(self) -> str:
        """One line per mistake: `path:line: message`."""
        locations = [self.path if line is None else f"{self.path}:{line}" for line, _ in self.found]
        lines = (f"{location}: {message}" for location, (_, message) in zip(locations, self.found, strict=True))
        return "\n".join(map(one_line, lines))


class Mistake(Enum):
    """A mistake: its code, which several may share, and its message with placeholders."""

    def __init__(self, code: str, words: str) -> None:
        self.code = code
        self.words = words

    # characters
    BAD_CHARACTER = "character", "unexpected character {found!r}"
    FOREIGN_OPERATOR = "character", "`{found}` is not an operator; write `{meant}`"
    FOREIGN_QUOTES = "character", "strings are written in double quotes"
    OPEN_STRING = "open-string", "this string does not end on its line"
    OPEN_COMMENT = "open-comment", "this comment does not end"
    BAD_ESCAPE = "escape", 'unknown escape {found!r}; expected \\" \\\\ \\n \\t \\r'
    RESERVED_NAME = "reserved-name", "'{name}' is reserved: names do not start with two underscores"

    # structure
    UNEXPECTED = "syntax", "unexpected {found}; expected {expected}"
    FOREIGN_WORD = "syntax", "unexpected {found}: {hint}"
    KEYWORD_AS_NAME = "syntax", "`{word}` is a keyword; write '#{word}' to use it as a name"
    COMPARISON_CHAIN = "comparison-chain", "comparisons do not chain: join two of them with `and`"
    NO_SECTION = "incomplete-query", "this query has no `{section}`"
    NO_INPUT = "incomplete-query", "`inputs` is empty; expected an event type with its window"
    NO_QUERY = "incomplete-query", "this text contains neither a query nor an event type"
    SECTION_ORDER = "syntax", "`{section}` must come before `{other}`"
    SECTION_TWICE = "syntax", "duplicate section `{section}`"
    PACKAGE_PLACE = "syntax", "`package` may appear only once, before everything else in a file"
    USING_PLACE = "syntax", "`using` must come before event types and queries"
    BETWEEN_COMMA = "syntax", "the names of a `between` are separated by spaces"
    NOT_A_TARGET = "syntax", "cannot assign to this; expected a name, a member or an element"
    NOT_A_TYPE = "syntax", "not a type"
    NEEDS_NAME = "syntax", "what `ifpresent` unpacks here needs a name: add `as ...`"
    VENDOR_EVENT = "syntax", '`%send` needs an "eventType"'
    NOT_IN_QUERIES = "not-in-queries", "{what} cannot be used in a query: {reason}"
    TOO_DEEP = "limit", "this expression is nested more than {limit} levels deep"
    LAYOUT_TOO_DEEP = "limit", "this is nested too deeply to be formatted"
    TOO_MANY_MISTAKES = "limit", "more than {limit} syntax errors; further errors are not shown"
    NUMBER_RANGE = "limit", "this number does not fit {type}"
    DURATION_RANGE = "limit", "this duration is longer than 100,000 years"
    TOO_MANY_HEARTBEATS = "limit", "only the first {limit} inputs of a query can have a heartbeat"
    PATTERN_TOO_DEEP = "limit", "this pattern is nested more than {limit} levels deep"
    PATTERN_TOO_LONG = "limit", "this pattern has more than {limit} events"
    PATTERN_TOO_LARGE = (
        "limit",
        "this pattern can be matched in too many ways: join fewer events by `and` and `or`, or repeat fewer",
    )

    # names
    UNKNOWN_EVENT = "unknown-event", "unknown event type '{name}'"
    SPLIT_TURNED = (
        "split-order",
        "`split` belongs to the separator: `{separator}.split(text)`, not `text.split({separator})`",
    )
    UNKNOWN_FIELD = "unknown-field", "'{event}' has no field '{name}'"
    UNSEEN_FIELD = "unknown-field", "unknown field '{name}': the fields of '{event}' are not known; define the event"
    UNKNOWN_NAME = "unknown-name", "'{name}' is not a name of this pattern"
    UNKNOWN_NAME_OF_EVENT = "unknown-name", "unknown name '{name}': neither a member of the event nor a variable"
    UNKNOWN_FILTER_NAME = (
        "unknown-name",
        "unknown name '{name}': a filter knows the fields of its event, constants and parameters",
    )
    UNKNOWN_HERE = "unknown-name", "unknown name '{name}'"
    UNKNOWN_UNIT = "unknown-unit", "unknown unit of time '{name}'"
    UNKNOWN_METHOD = "unknown-method", "{type} has no method '{name}'"
    TIME_FORMAT = "time-format", "{problem}"
    NETWORK = "network", "{problem}"
    UNKNOWN_CONSTANT = "unknown-name", "{type} has no constant '{name}'"
    UNKNOWN_ANNOTATION = "unknown-annotation", "unknown annotation '@{name}'"
    UNKNOWN_TYPE = "unknown-type", "unknown type '{name}'"
    UNKNOWN_TIME = "unknown-field", "'{event}' has neither a field nor an action '{name}'"
    DUPLICATE_QUERY = "duplicate-query", "duplicate query '{name}', already defined at {place}"
    ROUTE_CYCLE = (
        "route-cycle",
        "queries feed each other in a circle: {path}; route another type, or `send` it to a channel",
    )
    ROUTE_CONTROL = "route-control", "'{event}' is a control event: data must not change parameters or queries"
    ROUTE_HEARTBEAT = (
        "route-heartbeat",
        (
            "this heartbeat of '{input}' in query '{query}' needs the whole key: one without it counts for every key,"
            " and one key's match would make the others' events late"
        ),
    )
    DUPLICATE_EVENT = "duplicate-event", "'{name}' is defined with other fields or annotations at {place}"
    DUPLICATE_TABLE = "duplicate-table", "table '{name}' is defined with other columns at {place}"
    TABLE_IS_EVENT = "duplicate-table", "'{name}' is an event type, too: give the table another name"
    DUPLICATE_COLUMN = "duplicate-name", "table '{table}' already has a column '{name}'"
    DUPLICATE_FIELD = "duplicate-name", "'{event}' already has a field or action '{name}'"
    DUPLICATE_INPUT = (
        "duplicate-input",
        "'{event}' is already an input of this query; a type is several inputs by roles: {example}",
    )
    DUPLICATE_ROLE = "duplicate-name", "'{name}' is already the role of an input of '{event}'"
    ROLE_NAME = "role", "'{name}' is {what}; the role needs another name"
    ROLE_TIME = "role", "inputs of '{event}' must agree about its time: this one and '{first}' differ {differ}"
    HAS_ROLE = "role", "inputs of '{event}' have roles: in patterns it is called {roles}"
    DUPLICATE_NAME = "duplicate-name", "'{name}' is already a name of this pattern"
    DUPLICATE_KEY = "duplicate-name", "duplicate key '{name}'"
    NAME_IS_KEY = "duplicate-name", "'{name}' is a key of this query; {what} needs another name"
    NAME_IS_PARAMETER = "duplicate-name", "'{name}' is a parameter of this query; {what} needs another name"
    DUPLICATE_PARAMETER = "duplicate-name", "duplicate parameter '{name}'"
    DUPLICATE_SELECT = "duplicate-name", "duplicate `select ... as {name}`"
    NOT_AN_INPUT = "not-an-input", "'{event}' is not an input of this query"

    # durations and windows
    UNIT_TWICE = "unit-order", "duplicate unit '{unit}'"
    UNIT_ORDER = "unit-order", "'{unit}' is not smaller than '{before}': units go from large to small"
    NOT_CONSTANT = "not-constant", "'{name}' cannot be used here: only constants and parameters can"
    NOT_CALCULABLE = "not-constant", "only numbers, parameters, arithmetic and conversions of these can be used here"
    NO_VALUE = "no-value", "{what} has no value: {reason}"
    NOT_POSITIVE = "not-positive", "{what} must be greater than 0"
    NO_WINDOW = "no-window", "this input needs `within` or `retain`"
    TWO_WITHIN = "duplicate-within", "this pattern already has a `within` over the same range"

    # keys
    KEY_COUNT = "keys-differ", "this input has {count}, '{first}' has {expected}"
    KEY_NAME = "keys-differ", "the key is called '{name}' here and '{expected}' for '{first}': give it a name with `as`"
    KEY_TYPE = "keys-differ", "the key '{name}' is {type} here and {expected} for '{first}'"
    KEY_NEEDS_NAME = "key-name", "an action as a key needs a name: `key {name}() as ...`"
    KEY_KIND = "key-type", "{what} is boolean, integer, float, decimal, string or location; '{name}' is {type}"
    KEY_MEMBER_NAME = "key-name", "a member as a key needs a name: `key {name} as ...`"
    KEY_MAY_MISS = "key-type", "'{name}' is {type}: a key that may be missing is written `{name}?`"
    KEY_NOT_FIELD = "key-type", "'{name}' is {found} of '{event}', not a field"
    KEY_TIME = "key-type", "the event's time cannot be a key: it is decided per key"
    COMPARED_TWICE = "duplicate-name", "'{name}' appears twice in this {clause}"

    # time
    TIME_TYPE = "time-type", "a source time is float or integer seconds; '{name}' is {type}"
    TIME_ARGUMENTS = "time-type", "a source time is an action without parameters; '{name}' has some"
    TIME_WITHOUT_WAIT = "syntax", "`time from` needs a `wait` after it"
    HEARTBEAT_MISSING = "heartbeat", "with `time from`, the heartbeat must be named: `wait ... or Type`"
    HEARTBEAT_OUT_OF_ORDER = "heartbeat", "'{event}' is @OutOfOrder: a heartbeat cannot be"
    HEARTBEAT_KEYS = "heartbeat", "'{event}' has only some of the key's fields; '{name}' is missing"
    HEARTBEAT_KEY_TYPE = "heartbeat", "the key field '{name}' is {type} in '{event}' and {expected} in '{input}'"
    HEARTBEAT_IS_INPUT = "heartbeat", "'{event}' is an input of this query: it cannot be a heartbeat of it"
    ANNOTATION_ARGUMENT = "annotation", "'@{name}' takes {expected}"

    # parameters
    PARAMETER_TYPE = (
        "parameter-type",
        "a parameter is integer, float, decimal, string, boolean, or a sequence of these, not {type}",
    )

    # patterns
    REPEAT_FORM = "repeat", "`{text}` is not a repeat: its numbers are whole, as in `{{2}}`, `{{2,}}` and `{{2,4}}`"
    REPEAT_NEVER = "repeat", "`{text}` takes no event: a repeat takes at least one; `?` and `*` may take none"
    REPEAT_BOUNDS = "repeat", "`{text}`: the first number must not be greater than the second"
    REPEAT_INSIDE = (
        "repeat",
        "a repeated group is made of single events joined by `->`: {found} cannot be repeated as a part of it",
    )
    REPEAT_EVERY = "repeat", "`find every` cannot be used with repeats: use `find`, or a pattern without them"
    TWO_RUNS = (
        "repeat",
        "a condition may be about each event of one run or group, not of {names}: use a fold, as in {hint}",
    )
    FOLD_NO_RUN = "fold", "`{name}(...)` takes the events of a repeated name, and none is named here"
    FOLD_TWO_RUNS = "fold", "`{name}(...)` takes the events of one run, or of one repeated group, not of {names}"
    FOLD_NESTED = "fold", "`{name}(...)` cannot be inside of another one"
    FOLD_NAME = "fold", "`{name}(...)` takes the name of a run"
    PREV_PLACE = "prev", "`prev(...)` can only be used in a `where`, and not inside of a fold"
    PREV_ALONE = "prev", "`prev(...)` needs a field or `getTime()`: `prev(a).field`"
    PREV_NAME = "prev", "`prev(...)` takes one name of the pattern"
    PREV_TYPES = (
        "prev",
        "every event that can be before needs the field '{name}', with one type: {found}",
    )
    EMPTY_PATTERN = "repeat", "this pattern may be empty: at least one of its steps must take an event"
    EMPTY_SIDE = (
        "repeat",
        "this side of the `or` may be empty: it must take an event",
    )
    WAIT_PLACE = "wait-place", "a `wait` cannot be first or last in brackets: it is before, between or after steps"
    WAIT_ROW = "wait-place", "this `wait` comes directly after another: write one, with the sum of their times"
    WAIT_EMPTY = "wait-place", "a `wait` cannot be beside a step that may be empty"
    NEXT_TO_WAIT = "wait-place", "nothing comes directly before or after a `wait`: write `->` in place of `=>`"
    WAIT_JOINED = "wait-place", "a `wait` cannot be part of `{operator}`: it is joined to steps by `->`"
    WAIT_REPEAT = "wait-repeat", "a `wait` repeats as `{{1,n}}`, with n from 1 to {most}"
    WAIT_REPEAT_PLACE = "wait-repeat", "only a `wait` at the end of the pattern repeats"
    NO_EVENT = "wait-place", "this pattern is only a `wait`: it needs an event"
    WITHOUT_NAME = "name-place", "'{name}' is a name of a `without`: only its own `where` may use it"
    WAIT_NAME = "name-place", "'{name}' is a `wait`, a point in time: only `between` may use it"
    EVERY_NAME = (
        "name-place",
        "'{name}' is a name of the pattern: the block of a `find every` sees `select` names, not events",
    )
    ACTION_NAME = "name-place", "'{name}' is a name of the pattern: an action takes it as an argument"
    OUTSIDE_AGGREGATE = (
        "name-place",
        "'{name}' is a name of the pattern: outside an aggregate it has no single value",
    )
    SELECT_NAME = "name-place", "'{name}' is a `select` name: conditions and aggregates cannot use it"
    SELECTED_LATER = "name-place", "'{name}' is selected further down: a name must be selected before it is used"
    BETWEEN_COUNT = "between", "`between` takes two or more names"
    BETWEEN_TWICE = "between", "duplicate name '{name}' in `between`"
    BETWEEN_WITHOUT = "between", "'{name}' is a name of a `without`: `between` takes names of the pattern"
    BETWEEN_PREV = (
        "between",
        "`prev` asks for neighbours: write `within ... between (prev(a) a)`, with one name and nothing beside it",
    )
    BOTH_SIDES = "or-sides", "'{name}' and '{other}' are on different sides of an `or`: write a `where` for each side"
    EVERY_ALONE = "every", "`find every` needs a `select` or a `having`"
    EVERY_MISSING = "every", "`{clause}` needs `find every`"
    SELECT_IS_COLUMN = "select-name", "'{name}' is a column that every match has: this `select` needs another name"
    SKIP_TWICE = "skip", "this pattern already has an `after match skip`"
    SKIP_PLACE = "skip", "`after match skip` must be the last clause, behind conditions and `select`"
    SKIP_EVERY = "skip", "a `find every` has no `after match skip`: it looks at all candidates together"
    SKIP_WAIT = "skip", "a pattern that ends with a `wait` has no `after match skip`: its matches are found later"
    AT_MOST_TWICE = "at-most", "this query already has an `at most`"
    AT_MOST_PLACE = "at-most", "`at most` must be the last clause, behind `after match skip`"
    AT_MOST_SAME = "at-most", "these values are compared already"
    AT_MOST_KIND = (
        "at-most",
        "`by` compares values that are boolean, integer, float, decimal, string or location, not {found}",
    )
    SKIP_UNSET = "skip", "'{name}' may be unset or empty: name an event that every match has"
    EVERY_WAIT = "every", "a `find every` cannot end with a `wait`"

    # filters
    FILTER_NAME = "filter", "before a range or `= *` stands the name of a field"
    FILTER_BOTH = "filter", "'{name}' is a field of the event and a parameter: rename the parameter"
    FILTER_TWICE = "filter", "the field '{name}' is already filtered: use a range, or one condition with `and`"
    FILTER_ORDER = "filter", "filters by position must come before filters by name"
    FILTER_COUNT = "filter", "too many filters by position: '{event}' has {count}"
    RANGE_REVERSED = "filter", "this range is reversed: its beginning is greater than its end"

    # types
    OPERATOR_TYPES = "type", "`{operator}` does not take {left} and {right}"
    OPERAND_TYPE = "type", "`{operator}` does not take {operand}"
    NO_LIST = "type", "behind `{operator}` stands a list, not {found}"
    NULL_EVENT = "type", "'{name}' is an event, which is never null; its fields may be"
    EXPECTED_TYPE = "type", "{what} must be {expected}, not {found}"
    ARGUMENT_COUNT = "argument-count", "'{name}' takes {expected}, not {count}"

    # event types
    AMBIGUOUS_EVENT = "ambiguous-event", "'{name}' may be '{first}' or '{second}': write the package too"
    TYPE_TOO_DEEP = "limit", "this type is nested more than {limit} levels deep"
    KEY_OF_DICTIONARY = "type", "the keys of a dictionary are of a simple type, not {found}"
    EVENT_IN_ITSELF = "event-cycle", "'{event}' contains itself through '{name}': {path}; no table could hold it"
    EVENT_TOO_DEEP = "limit", "events are nested more than {limit} levels deep in '{event}'"
    EVENT_TOO_LARGE = "limit", "an empty '{type}' has more than {limit} parts"
    FIELDS_TOO_LARGE = "limit", "the fields of '{event}' have more than {limit} parts"
    TOO_MANY_TYPES = "limit", "more than {limit} event types"
    CONSTANT_TYPE = "type", "a constant is boolean, integer, float, decimal or string, not {found}"
    SCHEMA_DIFFERS = "schema", "'{name}' is {type} here, but the column '{name}' of '{event}' is {found}"

    # tables beside the stream
    TABLE_NO_KEY = "table", "table '{name}' has no key: write `key` before the columns that its rows are found by"
    TABLE_NETWORKS = "table", "a table has at most one `key network`"
    TABLE_TIMES = "table", "'{name}' says when a row holds; it is not defined: give the column another name"
    TABLE_KEY_TYPE = "type", "a key of a table is boolean, integer or string, or a `network`; not {found}"
    TABLE_FIELD_TYPE = "type", "a column of a table is boolean, integer, float or string, not {found}"
    TABLE_AS_VALUE = "table", "'{name}' is a table: write {examples}"
    TABLE_METHOD = "table", "a table has no '{method}': write {examples}"
    TABLE_ROW = "table", "a row of a table is not a value: name its field, as in {examples}"
    SEVERAL_INDEXES = "argument-count", "only tables take several keys in `[...]`"
    TABLE_IN_ACTION = "table", "'{name}' looks something up, so it must do nothing but `return` an expression"
    TABLE_IN_KEY = "table", "{what} must not depend on a table, which may change: look it up in a condition"

    # members and calls
    FIELD_IS_METHOD = "unknown-field", "'{name}' is an action of {type}: it is called with `{name}()`"
    METHOD_IS_FIELD = "unknown-method", "'{name}' is a field of {type}: it is read without `()`"
    NO_MEMBERS = "unknown-field", "{type} has no member '{name}'"
    UNSET_MEMBER = "type", "this may be unset: '{name}' is read in `ifpresent` or behind `.getOrThrow()`"
    UNKNOWN_CONSTRUCTOR = "unknown-function", "unknown action or event type '{name}'"
    UNSEEN_CONSTRUCTOR = "unknown-event", "the fields of '{name}' are not known: define the event"
    NO_CONSTRUCTOR = "unknown-function", "a value of type {type} is not made with `{type}(...)`"
    EVENT_TYPE_AS_VALUE = "type", "'{name}' is an event type, not a value: `{name}(...)` makes an event"
    ACTION_AS_VALUE = "type", "'{name}' is an action: it is called with `{name}(...)`"
    NO_RESULT = "type", "'{name}' returns nothing, so it has no value"
    NOT_INDEXED = "type", "`[...]` takes a sequence or a dictionary, not {found}"
    EMPTY_LITERAL = "type", "the type of this empty {what} is not known: write `new {example}`"
    ITEM_TYPE = "type", "this is {found}, but those before are {expected}: all {what} must have one type"

    # statements
    DECLARED_TWICE = "duplicate-name", "'{name}' is already a name of this block"
    DECLARED_LATER = "unknown-name", "'{name}' is declared further down: a name must be declared before it is used"
    NOT_ASSIGNABLE = "assignment", "{what} cannot be assigned to"
    NOT_IN_LOOP = "not-in-loop", "`{word}` can be used only in a loop"
    NOTHING_TO_RETURN = "return", "{what} returns nothing"
    RETURN_MISSING = "return", "'{name}' does not return {type} on every path"
    RETURN_VALUE = "return", "'{name}' returns {type}: `return` needs a value"
    UNKNOWN_LEVEL = "unknown-level", "unknown log level '{name}'"
    NOT_OPTIONAL = "type", "`ifpresent` takes optionals, not {found}"
    NOT_A_SEQUENCE = "type", "`for` takes a sequence, not {found}"
    NOT_SENT = "type", "`{word}` takes an event, not {found}"
    NO_EFFECT = "no-effect", "this statement has no effect: call an action or assign with `:=`"
    STATEMENTS_TOO_DEEP = (
        "limit",
        "these statements are nested more than {limit} levels deep; each `else if` is a level too",
    )
    DUPLICATE_ACTION = "duplicate-name", "duplicate action '{name}'"
    SENT_TWICE = "duplicate-name", "duplicate value for '{name}'"

    # aggregates
    AGGREGATE_PLACE = (
        "aggregate",
        "an aggregate like `{name}` can be used only in `select` and `having` of a `find every`",
    )
    AGGREGATE_NESTED = "aggregate", "`{name}` cannot be used in an aggregate: an aggregate takes plain expressions"
    AGGREGATE_TYPES = "type", "the aggregate `{name}` does not take {found}"

    # warnings
    PREV_NEVER = "prev-never", "no event of this pattern can be before '{name}', so this condition is always ignored"
    ALL_RUNS = "all-runs", "`find all` finds each choice of events of this repeat: add `consecutive`, or a limit"
    MANY_CHOICES = (
        "many-choices",
        "a condition is about all events of this repeat: a search of {steps} steps is ended; add `consecutive` or `within`",
    )
    DEAR_REPEAT = (
        "many-choices",
        "a search over this repeat may take the {power} of the events in windows; add `consecutive` or `within`",
    )
    LAST_EMPTY = "last-step", "the last step may be empty: the pattern matches without it before it can come"
    IDLE_HEARTBEAT = "idle-heartbeat", "@Heartbeat has no effect here: it applies only to types with @TimeFrom"
    UNSEEN_EVENT = "unseen-event", "the fields of '{name}' are not known: neither a definition nor the data gives them"
    IDLE_WHERE = "idle-where", "this `where` belongs to the `without` before it and does not mention its '{name}'"
    SHORT_WINDOW = "short-window", "this `wait` looks {wait} back, but '{event}' is kept for {within} only"
    SHORT_AFTER_WAIT = (
        "short-window",
        "this `wait` takes {wait}, but '{event}' is kept for {within} only: what it looks for may be gone by then",
    )
    IDLE_WITHIN = "idle-within", "this `within` has no effect: events are kept for {kept} at most"
    UNUSED_INPUT = "unused-input", "'{event}' is an input, but neither the pattern nor a `without` uses it"
    METADATA_TWICE = "metadata-twice", "this key is written twice: '{name}' has the last of its values"
    UNUSED_PARAMETER = "unused-parameter", "the parameter '{name}' is not used"
    NEVER_KEPT = (
        "never-matches",
        "this never matches: it needs {needed} events of '{event}' together, but `retain` keeps {kept}",
    )
    NEVER_UNIQUE = (
        "never-matches",
        "this never matches: it needs {needed} events of '{event}' together, but `with unique` keeps one per key",
    )
    NEVER_WITHIN = "never-matches", "this never matches: the `wait` in this range alone takes {wait}"
    NEVER_AFTER_WAIT = (
        "never-matches",
        "this never matches: the `wait` takes {wait}, but '{event}' is kept for {within} only",
    )
    NEVER_TRUE = "never-matches", "this never matches: the condition is always false"
    NEVER_OTHER_KEY = "never-matches", "this never matches: all events of a match have the same key"
    ROUTE_LATE = (
        "route-late",
        (
            "query '{query}' waits {wait} for '{event}', whose time may be {delay} old when it is routed: give it a"
            " longer `wait`"
        ),
    )
    NEVER_TOGETHER = "never-matches", "this never matches: no value fulfils this and what is asked of it before"
    KEPT_KEYS = (
        "kept-keys",
        "`retain` without `within` keeps '{event}' of every key for ever; add a `within`, or set `forget_keys`",
    )


class QueryError(EnsueError):
    """One mistake of a query text: its code, its place, its message."""

    def __init__(self, code: str, span: Span, message: str) -> None:
        super().__init__(code, span, message)
        self.code = code
        self.span = span
        self.message = message

    @classmethod
    def of(cls, mistake: Mistake, span: Span, **facts: str | int) -> QueryError:
        """A mistake with the placeholders of its message filled in."""
        return cls(mistake.code, span, mistake.words.format(**facts))

    def suggesting(self, name: str, near: Iterable[str]) -> QueryError:
        """The same mistake with the nearest of these names suggested, if any is near to `name`."""
        return QueryError(self.code, self.span, self.message + did_you_mean(name, near))

    def with_hint(self, hint: str | None) -> QueryError:
        """The same mistake with a hint after its message; None: there is no hint."""
        return self if hint is None else QueryError(self.code, self.span, f"{self.message}; {hint}")

    def __str__(self) -> str:
        """The line with the place, and the source line with carets."""
        span = self.span
        line = f"{span.source.path}:{span.line}:{span.column}: {self.code}: {self.message}"
        return f"{one_line(line)}\n{span.snippet()}"


class QueryErrors(EnsueError):
    """All mistakes of a set of texts, in text order."""

    def __init__(self, errors: Sequence[QueryError]) -> None:
        self.errors = tuple(errors)
        super().__init__(self.errors)

    def __str__(self) -> str:
        """The whole report."""
        return "\n".join(str(error) for error in self.errors)


def exit_code_of(error: BaseException) -> ExitCode:
    """What a command ends with that an error has ended; one without plain words is our failure."""
    match error:
        case EnsueError():
            return error.exit_code
        case MemoryError():
            return ExitCode.PASSES
        case _:
            return ExitCode.OURS


def exit_code_of_all(errors: Iterable[BaseException]) -> ExitCode:
    """What a command ends with that has reported these: `PASSES` only if all of them may pass."""
    return min(map(exit_code_of, errors), default=ExitCode.DONE)


MOST_COMPARISONS = 300_000
"""How many names are compared for the hints of one check."""

_CLOSELY_COMPARED = 10
"""How many of many names are compared letter by letter."""

_LEAST_LIKENESS = 0.5
"""Of the names that are compared letter by letter: of two letters one may differ."""

_FEWEST_LETTERS = 3
"""Of a name that is found inside of longer ones."""

_comparisons_left: ContextVar[int | None] = ContextVar("_comparisons_left", default=None)


@contextmanager
def limited_hints() -> Iterator[None]:
    """Inside, no name is near any more after `MOST_COMPARISONS`.

    A text with many mistakes and many names would have as many comparisons as their product.
    """
    before = _comparisons_left.set(MOST_COMPARISONS)
    try:
        yield
    finally:
        _comparisons_left.reset(before)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most similar to this one, or None if none is near."""
    left = _comparisons_left.get()
    if left is not None and left <= 0:
        return None
    choices = sorted(set(known) - {name})
    if left is not None:
        _comparisons_left.set(left - len(choices))
    folded = {choice.casefold()[:MOST_LETTERS]: choice for choice in reversed(choices)}
    wanted = name.casefold()[:MOST_LETTERS]
    found = difflib.get_close_matches(wanted, _like(wanted, list(folded)), n=_CLOSELY_COMPARED, cutoff=_LEAST_LIKENESS)
    near = [choice for choice in found if _is_near(wanted, choice)]
    return folded[min(near, key=lambda choice: _distance(wanted, choice))] if near else None


def _is_near(name: str, choice: str) -> bool:
    """Whether two fifths of the letters differ at most, or one name is short for the other.

    `avg` is short for `average`, `card` for `card_id`, and `time` for `event_time`.
    """
    shorter, longer = sorted((name, choice), key=len)
    if _distance(name, choice) <= max(1, 2 * len(longer) // 5):
        return True
    return (len(shorter) >= _FEWEST_LETTERS and shorter in longer) or _abbreviates(shorter, longer)


def _abbreviates(shorter: str, longer: str) -> bool:
    """Whether a word has the first letter of another one and some of its later ones, in order."""
    letters = iter(longer)
    return shorter[:1] == longer[:1] and all(letter in letters for letter in shorter)


def _distance(name: str, choice: str) -> int:
    """How many letters must be added, removed, replaced or swapped with the next one."""
    before: list[int] = []
    row = list(range(len(choice) + 1))
    for place, letter in enumerate(name, 1):
        before, above, row = row, before, [place]
        for other, wanted in enumerate(choice, 1):
            cost = min(before[other] + 1, row[other - 1] + 1, before[other - 1] + (letter != wanted))
            if above and other > 1 and letter == choice[other - 2] and wanted == name[place - 2]:
                cost = min(cost, above[other - 2] + 1)
            row.append(cost)
    return row[-1]


MOST_LETTERS = 80
"""Letters of a name that are compared."""


def _like(name: str, choices: list[str]) -> list[str]:
    """Of many names those that have the most parts in common with this one."""
    if len(choices) <= 5 * _CLOSELY_COMPARED:
        return choices
    parts = _parts(name)
    likeness = [len(parts & _parts(choice)) / (len(choice) + len(name)) for choice in choices]
    return [choices[index] for index in nlargest(_CLOSELY_COMPARED, range(len(choices)), key=likeness.__getitem__)]


@lru_cache(maxsize=20_000)
def _parts(name: str) -> frozenset[str]:
    """Its letters, and its pairs of neighbouring letters."""
    return frozenset(name) | {f"{first}{second}" for first, second in pairwise(f" {name} ")}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing if no known name is near."""
    meant = nearest(name, known)
    return f"; did you mean '{meant}'?" if meant is not None else ""


_MOST_FILES = 1000
"""Files of a folder whose names are compared."""


_QUERY_TEXT = re.compile(r"\binputs\s*\{[^}]*\}\s*find\b")


def near_file(path: str | Path) -> str:
    """The same for a file that does not exist, and one beside it: name or suffix are another's.

    Query text in place of a file has its own way out.
    """
    if _QUERY_TEXT.search(str(path)):
        return "; query text is written to a file, or to standard input, where the file is `-`"
    wanted = Path(path)
    if not can_be(path) or not is_folder(wanted.parent):
        return ""
    with suppress(OSError):
        beside = list(islice(wanted.parent.iterdir(), _MOST_FILES))
        stem = nearest(wanted.stem, [entry.stem for entry in beside if entry.suffix == wanted.suffix])
        if stem is not None:
            return f"; did you mean '{stem}{wanted.suffix}'?"
        return did_you_mean(wanted.name, [entry.name for entry in beside if entry.stem == wanted.stem])
    return ""


def kind_in_words(value: object) -> str:
    """What a user of Python gave where something else is meant: `None`, or the name of its type."""
    return "None" if value is None else type(value).__name__


def counted(count: int, one: str, many: str | None = None, zero: str = "0") -> str:
    """`1 match`, `2 matches`.

    `many`: the plural, if it is not `one` with an s. `zero`: the word for 0.
    """
    return f"{count or zero} {one if count == 1 else many or one + 's'}"


def listed(words: Iterable[str], joint: str = "and") -> str:
    """`a, b and c`; an empty text for no words."""
    *others, last = [*words] or [""]
    return f"{', '.join(others)} {joint} {last}" if others else last

"""What public functions share: keywords of one table, and messages that name them.

A message says `time_unit="ms"` where the command line has `--time-unit ms`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from ensue.data_options import ARGUMENTS, DataOptions, FrameOptions
from querylang.errors import InputError, did_you_mean
from querylang.printable import words

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

_OPTION = re.compile(r'`--([a-z-]+) ("[^`]*"|[^`]+)`')


def public_call(options: type[FrameOptions]) -> Callable[[Callable[Given, Answer]], Callable[Given, Answer]]:
    """Make a public function of one whose `**options` are the keywords of a table.

    Its signature and documentation have each of them, a wrong one is a TypeError that names the
    nearest, and messages name arguments.
    """

    def made(function: Callable[Given, Answer]) -> Callable[Given, Answer]:
        signature = _with_keywords(inspect.signature(function), options)

        @wraps(function)
        def call(*args: Given.args, **given: Given.kwargs) -> Answer:
            for name in given:
                if name not in signature.parameters:
                    near = did_you_mean(name, signature.parameters)
                    raise TypeError(f"{function.__name__}() got an unexpected keyword argument '{name}'{near}")
            with in_python_words():
                return function(*args, **given)

        call.__signature__ = signature  # type: ignore[attr-defined]  # what `help` and notebooks read
        call.__doc__ = _OPTIONS.sub(_texts_of(options), function.__doc__ or "")
        return call

    return made


_OPTIONS = re.compile(r"    options: .*\n")
"""The line of a docstring in whose place the keywords are."""


def _with_keywords(signature: inspect.Signature, options: type[FrameOptions]) -> inspect.Signature:
    *before, _ = signature.parameters.values()
    types = DataOptions.__annotations__
    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=types[name])
        for name in ARGUMENTS
        if name in options.__annotations__
    ]
    return signature.replace(parameters=[*before, *own])


def _texts_of(options: type[FrameOptions]) -> str:
    lines = (f"{name}: {text}" for name, text in ARGUMENTS.items() if name in options.__annotations__)
    return "".join(f"    {line}\n" for text in lines for line in text.splitlines())


@contextmanager
def in_python_words() -> Iterator[None]:
    """What a call raises and warns of names its arguments, not options of the command line."""
    before = words.set(python_words)
    try:
        yield
    except InputError as error:
        error.args = tuple(python_words(part) if isinstance(part, str) else part for part in error.args)
        raise
    finally:
        words.reset(before)


def python_words(text: str) -> str:
    """The message with arguments for the options in it."""
    return _OPTION.sub(_argument, text)


def _argument(found: re.Match[str]) -> str:
    name, value = found[1].replace("-", "_"), found[2]
    if name not in ARGUMENTS:
        return found[0]
    return f"`{name}={value}`" if value.startswith('"') else f'`{name}="{value}"`'

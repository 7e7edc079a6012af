"""Find our own error in the text of Spark's: workers' exceptions reach the driver as text."""

from __future__ import annotations

import re

from querylang.errors import InputError

_OURS = re.compile(r"^(?:[\w.]+\.)?(?:InputError|StateError|ContainerError): (.+)$", re.MULTILINE)
_NOT_INSTALLED = re.compile(r"Ensue cannot be imported on a Spark executor.*")


def plain_error(error: Exception) -> Exception:
    """An InputError with our last message in the error's text; without one, the error itself."""
    text = str(error)
    missing = _NOT_INSTALLED.search(text)
    if missing is not None:
        return InputError(missing[0])
    found = _OURS.findall(text)
    return InputError(str(found[-1]).strip()) if found else error

"""What the system refuses, in plain words with the way out: files, disks, permissions."""

from __future__ import annotations

import errno
import os
import re
import resource

from querylang.errors import InputError, PassingError, is_passing
from querylang.printable import one_line

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The numbers of a disk without room."""

_PERMISSION = frozenset({errno.EACCES, errno.EPERM})

_IN_TEXT = re.compile(r"\[errno (\d+)\]", re.IGNORECASE)


def number_of(error: BaseException | str) -> int | None:
    """The number that the system gives an error, or that the text of another one names."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    text = str(error)
    found = _IN_TEXT.search(text)
    if found is not None:
        return int(found[1])
    named = [number for number in _WORDS if os.strerror(number) in text]
    return max(named, key=lambda number: len(os.strerror(number)), default=None)  # one may begin another


def reason_of(error: BaseException | str) -> str:
    """What the system said, and the way out where there is one; no full stop at the end."""
    number = number_of(error) or 0
    own = getattr(error, "strerror", None) or one_line(str(error))
    if number not in _WORDS or (number in _PERMISSION and own != os.strerror(number)):
        return own  # a store says itself whom it refuses
    return _WORDS[number].format(limit=_limit(), user=_user())


def has_way_out(error: BaseException) -> bool:
    """Whether `reason_of` says it in words of ours."""
    return number_of(error) in _WORDS


def refused(error: Exception, text: str, then: str = "") -> InputError:
    """The error for what the system refuses: `TEXT: REASON[. THEN]`.

    error: of the system, or one whose text names such an error; a ValueError is a path that no file
        can have
    """
    line = f"{text}: {reason_of(error)}{then and f'. {then}'}"
    may_pass = is_passing(error) or is_passing(OSError(number_of(error) or 0, ""))
    return PassingError(line) if may_pass else InputError(line)


_WORDS = {
    errno.ENOSPC: "the disk is full. Make room, or choose another place",
    errno.EDQUOT: "the disk is full as far as this user's quota goes. Make room, or choose another place",
    errno.EROFS: "the file system is read-only. Mount it such that it can be written, or choose another place",
    errno.EMFILE: "too many files are open: this process may have {limit}."
    " Allow more, such as `ulimit -n 65536`, or `LimitNOFILE=65536` of a service",
    errno.ENFILE: "too many files are open on this machine. Close some, or raise `sysctl fs.file-max`",
    errno.EACCES: "no permission for {user}. Give it, or run as a user who has it",
    errno.EPERM: "not permitted for {user}. Permit it, or run as a user who may",
}


def _limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _user() -> str:
    import pwd  # for an error only

    number = os.geteuid()
    try:
        return f"the user '{pwd.getpwuid(number).pw_name}'"
    except KeyError:  # as in containers
        return f"the user {number}"

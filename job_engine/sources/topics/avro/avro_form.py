"""What workers have to know of a source's Avro, as plain data.

Imports only the standard library, so that `ensue check` reads deployment files fast.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """A schema registry and how it is reached.

    urls: tried in this order, without login
    login: user name and password with a colon between; None = none
    token: of a bearer; None = none
    authorities: file with the certificates that are trusted; None = those of the system
    certificate, key, key_password: the client's own; None = none
    """

    urls: tuple[str, ...]
    login: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    authorities: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return f"the schema registry at {', '.join(self.urls)}"


@dataclass(frozen=True, slots=True)
class AvroForm:
    """How messages are written.

    schema: that of a file, as JSON; with a registry it is the one that readers expect
    registry: messages begin with the number of their schema there; None = they have no such number
    """

    schema: str | None = None
    registry: RegistryAddress | None = None

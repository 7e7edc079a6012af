"""Networks of IP addresses, as texts name them."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_KEPT = 4096
"""So many networks are read once."""


class NotANetworkError(ValueError):
    """What is wrong with a text that should name a network.

    instead: what to write; None = it resembles none
    """

    def __init__(self, problem: str, instead: str | None) -> None:
        super().__init__(problem)
        self.instead = instead


@lru_cache(_KEPT)
def network_of(text: str) -> Network:
    """A network such as `10.0.0.0/8`; an address alone is one, too. Raises NotANetworkError."""
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        pass
    try:
        wanted = str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        problem = f"'{text}' is not a network of IP addresses, such as 10.0.0.0/8 or 2001:db8::/32"
        raise NotANetworkError(problem, None) from None
    raise NotANetworkError(f"'{text}' has bits behind the network's length: it is an address inside of it", wanted)

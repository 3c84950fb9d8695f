"""Limits on the requests and bytes a second of the clients of one address, if a setting gives them.

A client above its quota is not refused: its connection is not read until the excess has been worked
off, so the client only notices a slower member. All connections of an address share its quota, and
one second's worth may arrive at once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dledger_node.remoting.limits import Limits

WAIT_S_MAX: Final = 10.0
"""Maximum time for which an address is not read, well below the limit on idle connections."""


@dataclass(slots=True)
class _Used:
    """What an address has used, in seconds of its quota; it may be ahead by one second."""

    at_s: float
    used_s: float = 0.0


class Quotas:
    """The use of every address that has sent something in the last second."""

    def __init__(self, limits: Limits, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._used: dict[str, _Used] = {}
        self.take_limits(limits)

    def take_limits(self, limits: Limits) -> None:
        """Apply other quotas from now on; what an address has used stays used."""
        self._requests_per_s = limits.client_requests_per_s_max
        self._bytes_per_s = limits.client_bytes_per_s_max

    @property
    def active(self) -> bool:
        """Whether there is any quota."""
        return bool(self._requests_per_s or self._bytes_per_s)

    def use(self, address: str, requests: int, received_bytes: int) -> float:
        """Count requests and bytes; return for how many seconds this address must not be read."""
        now_s = self._now_s()
        used = self._used.setdefault(address, _Used(now_s))
        used.used_s = max(0.0, used.used_s - (now_s - used.at_s))
        used.at_s = now_s
        if self._requests_per_s:
            used.used_s += requests / self._requests_per_s
        if self._bytes_per_s:
            used.used_s += received_bytes / self._bytes_per_s
        used.used_s = min(used.used_s, 1.0 + WAIT_S_MAX)
        return max(0.0, used.used_s - 1.0)

    def forget_unused(self) -> None:
        """Forget the addresses that have their whole quota again; call this about once a second."""
        now_s = self._now_s()
        for address, used in list(self._used.items()):
            if used.used_s <= now_s - used.at_s:
                del self._used[address]

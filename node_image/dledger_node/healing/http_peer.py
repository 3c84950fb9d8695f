"""Ask a peer for stored bytes over HTTP; blocks."""

import http.client
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dledger_formats.admin_tokens import FILE_BYTES_MAX, AdminTokens, TokensError
from dledger_node.errors import NotYetCommittedError
from dledger_node.http.pages import STORED_BYTES_MAX
from dledger_node.http.places import RETRY_AFTER

TIMEOUT_S: Final = 5.0
SLOW_S: Final = 1.0
ASKED_AGAIN_S: Final = 10.0
"""A peer that was silent for longer than SLOW_S is asked again only after this time: the host of a
dead peer would cost a timeout for each damaged range that another peer gives at once.
"""


class HttpPeer:
    """A peer's page of stored bytes; it keeps one connection."""

    def __init__(
        self,
        address: str,
        token_file: str = "",
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`token_file` has the administration tokens, if the group demands one."""
        self._address = address
        self._monotonic_s = monotonic_s
        self._silent_until_s, self._silence = -math.inf, ""
        """Until when a peer that was silent for long is not asked again, and its last error."""
        self._token_file = token_file
        self._headers: dict[str, str] = {}
        self._connection: http.client.HTTPConnection | None = None

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        """Return stored bytes as `Peer` does; a peer of an earlier release ignores `known`."""
        query = f"at={at}&size={size}" + (f"&known={known.hex()}" if known else "")
        began_s = self._monotonic_s()
        if began_s < self._silent_until_s:
            raise OSError(f"{self._address} does not answer: {self._silence}")
        try:
            response, body = self._ask(f"/stored/{name}?{query}")
        except OSError as error:
            ended_s = self._monotonic_s()
            if ended_s - began_s > SLOW_S:
                self._silent_until_s = ended_s + ASKED_AGAIN_S
                self._silence = str(error) or type(error).__name__
            raise
        if response.status == http.client.OK and len(body) == size:
            return body
        self.close()
        reason = body[:200].decode(errors="replace").strip()
        message = f"{self._address} answered {response.status}: {reason}"
        if response.status != http.client.NOT_FOUND:
            raise OSError(message)
        if response.getheader(RETRY_AFTER) is not None:
            raise NotYetCommittedError(message)
        raise LookupError(message)

    def _ask(self, page: str) -> tuple[http.client.HTTPResponse, bytes]:
        """Return the peer's answer. Raises OSError."""
        was_idle = self._connection is not None
        try:
            return self._exchange(page)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if was_idle and isinstance(error, ConnectionError):
                return self._ask(page)  # the peer has closed the idle connection; this one is new
            if isinstance(error, http.client.HTTPException):
                what = f"{self._address} did not answer as a member does: {error}"
                raise OSError(what) from error
            raise

    def _exchange(self, page: str) -> tuple[http.client.HTTPResponse, bytes]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT_S)
            self._headers = authorization(self._token_file)
        self._connection.request("GET", page, headers=self._headers)
        response = self._connection.getresponse()
        return response, response.read(STORED_BYTES_MAX + 1)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def authorization(token_file: str) -> dict[str, str]:
    """Return the header with the audit token; empty if there is no token yet.

    A peer gives its bytes to the addresses of members even without a token.
    """
    if not token_file:
        return {}
    try:
        with Path(token_file).open("rb") as file:
            tokens = AdminTokens.parse(file.read(FILE_BYTES_MAX + 1))
    except (OSError, TokensError):
        return {}  # `shell.token_file` reports it
    return {"Authorization": f"Bearer {tokens.for_audits().current}"}

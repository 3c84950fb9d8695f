"""Read stored bytes of a log from the peers, over HTTP; blocks.

Every member stores an entry at the same position, so a range of positions names the same bytes on
all of them. A peer in service has them, and so has one that is itself out of service: it gives what
its disk holds. So nothing that a peer sends is trusted; `mending` checks it.
"""

import http.client
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, Protocol

from dledger_formats.log import disk
from dledger_node.http.pages import STORED_BYTES_MAX

CHUNK_BYTES: Final = 256 << 10
CHUNKS_KEPT: Final = 32
TIMEOUT_S: Final = 5.0

assert CHUNK_BYTES <= STORED_BYTES_MAX


class NoPeerError(Exception):
    """No peer gave these bytes."""

    def __init__(self, message: str, *, silent: bool) -> None:
        super().__init__(message)
        self.silent = silent
        """Whether a peer gave no answer: it may have the bytes."""


class Peer(Protocol):
    """A member that may have the bytes."""

    def stored(self, name: str, at: int, size: int) -> bytes:
        """Return bytes of a data file. Raises OSError, or LookupError if it does not have them."""


class HttpPeer:
    """A peer's page of stored bytes; it keeps one connection."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection: http.client.HTTPConnection | None = None

    def stored(self, name: str, at: int, size: int) -> bytes:
        """Return bytes of a data file. Raises OSError, or LookupError if it does not have them."""
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT_S)
            self._connection.request("GET", f"/stored/{name}?at={at}&size={size}")
            response = self._connection.getresponse()
            body = response.read(STORED_BYTES_MAX + 1)
        except http.client.HTTPException as error:
            self.close()
            raise OSError(f"{self._address}: {error!r}") from error
        except OSError:
            self.close()
            raise
        if response.status == http.client.OK and len(body) == size:
            return body
        self.close()
        reason = body[:200].decode(errors="replace").strip()
        kind = LookupError if response.status == http.client.NOT_FOUND else OSError
        raise kind(f"{self._address} answered {response.status}: {reason}")

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class PeerBytes:
    """The bytes of one range, in chunks; a chunk that proves wrong is read from another peer.

    A chunk is the same whenever it is read again: it may be verified first and written later.
    """

    def __init__(
        self, peers: Mapping[str, Peer], start: int, end: int, segment_size_bytes: int
    ) -> None:
        self.fetched_bytes = 0
        self._peers = peers
        self._start = start
        self._end = end
        self._segment_size = segment_size_bytes
        self._rejected: dict[int, set[str]] = {}
        self._sources: dict[int, tuple[str, bytes]] = {}  # the peer of a chunk, and its digest
        self._kept: dict[int, bytes] = {}
        self._refusals: dict[str, str] = {}
        self._silent: set[str] = set()  # not asked again: each might take TIMEOUT_S for each chunk

    @property
    def sources(self) -> list[str]:
        """The peers that gave bytes."""
        return sorted({peer_id for peer_id, _ in self._sources.values()})

    def read(self, start: int, end: int) -> bytes:
        """Return bytes of the range. Raises NoPeerError."""
        parts = []
        for number in self._numbers(start, end):
            low = self._start + number * CHUNK_BYTES
            chunk = self._chunk(number)
            parts.append(chunk[max(0, start - low) : end - low])
        return b"".join(parts)

    def reject(self, start: int, end: int) -> None:
        """Read the bytes between two positions from other peers from now on."""
        for number in self._numbers(start, min(end, self._end)):
            self._kept.pop(number, None)
            source = self._sources.pop(number, None)
            if source is not None:
                self._rejected.setdefault(number, set()).add(source[0])
                self._refusals[source[0]] = "its bytes fail the checksums"

    def _numbers(self, start: int, end: int) -> range:
        first = (start - self._start) // CHUNK_BYTES
        return range(first, (end - 1 - self._start) // CHUNK_BYTES + 1)

    def _chunk(self, number: int) -> bytes:
        if number in self._kept:
            return self._kept[number]
        chunk = self._fetch(number)
        while len(self._kept) >= CHUNKS_KEPT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[number] = chunk
        return chunk

    def _fetch(self, number: int) -> bytes:
        low = self._start + number * CHUNK_BYTES
        high = min(self._end, low + CHUNK_BYTES)
        known = self._sources.get(number)
        for peer_id, peer in self._peers.items():
            if peer_id in self._silent or peer_id in self._rejected.get(number, ()):
                continue
            if known and known[0] != peer_id:
                continue
            try:
                chunk = self._from(peer, low, high)
            except LookupError as error:
                self._refusals[peer_id] = str(error)
                continue
            except OSError as error:
                self._refusals[peer_id] = str(error) or type(error).__name__
                self._silent.add(peer_id)
                continue
            digest = sha256(chunk).digest()
            if known and known[1] != digest:
                self._refusals[peer_id] = "its bytes have changed"
                self._silent.add(peer_id)
                continue
            self._sources[number] = (peer_id, digest)
            return chunk
        reasons = "; ".join(f"{peer_id}: {why}" for peer_id, why in sorted(self._refusals.items()))
        raise NoPeerError(reasons or "there is no other member", silent=bool(self._silent))

    def _from(self, peer: Peer, low: int, high: int) -> bytes:
        """Read across segments."""
        parts = []
        while low < high:
            segment = low - low % self._segment_size
            stop = min(high, segment + self._segment_size)
            parts.append(peer.stored(disk.file_name(segment), low - segment, stop - low))
            self.fetched_bytes += stop - low
            low = stop
        return b"".join(parts)

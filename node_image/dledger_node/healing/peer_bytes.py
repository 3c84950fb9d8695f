"""Read stored bytes of a log from the peers; blocks.

Every member stores an entry at the same position, so a range of positions names the same bytes on
all of them. A peer in service gives them, and so does one that is itself out of service, from what
its disk holds. So nothing that a peer sends is trusted; `mending` checks it, entry by entry.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

from dledger_formats.log import disk
from dledger_node.errors import NotYetCommittedError
from dledger_node.http.pages import KNOWN_HEADERS_MAX, STORED_BYTES_MAX
from dledger_node.shortages import is_passing
from dledger_node.store.log.damaged_ranges import HEADERS_MAX
from dledger_node.store.log.served_segments import stored_bytes

CHUNK_BYTES: Final = 256 << 10
BLOCK_BYTES: Final = 4096
CHUNKS_KEPT: Final = 32
OWN: Final = "this member"
"""The name of this member among those that give bytes."""

assert CHUNK_BYTES <= STORED_BYTES_MAX
assert HEADERS_MAX <= KNOWN_HEADERS_MAX


class NoPeerError(Exception):
    """No peer gave these bytes."""

    def __init__(self, message: str, *, may_give_later: bool) -> None:
        super().__init__(message)
        self.may_give_later = may_give_later
        """Whether a peer gave no answer, or does not know yet that these bytes are committed."""


class Peer(Protocol):
    """A member that may have the bytes."""

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        """Return committed bytes of a data file.

        The peer knows that they are committed, or they lie before an entry of its log with one of
        the headers in `known`. Raises OSError, or LookupError if it does not have them:
        NotYetCommittedError if it may have them later.
        """


_Key: TypeAlias = tuple[int, str]
"""Where a chunk or block begins, and the peer that gives it."""


class OwnBytes:
    """The member's own data files: sound bytes of a damaged range need not come from a peer."""

    def __init__(self, folder: Path) -> None:
        """`folder` has the data files."""
        self._folder = folder

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        """Return bytes of a data file. Raises LookupError if the disk cannot read them, OSError if
        the process lacks descriptors or memory for that.
        """
        try:
            return stored_bytes(self._folder, name, at, size, disk.start_offset(name) + at + size)
        except OSError as error:
            if is_passing(error):
                raise
            raise LookupError(str(error)) from error


class InformedPeer:
    """A peer that receives headers of committed entries if it does not know which are committed.

    `Peer.stored` says how it uses them. Most peers know, and the headers are not read then.
    """

    def __init__(self, peer: Peer, headers: Callable[[], bytes]) -> None:
        """`headers` reads the headers; it returns none if they cannot be read."""
        self._peer = peer
        self._headers = headers
        self._known = b""

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        """Return stored bytes as `Peer` does."""
        try:
            return self._peer.stored(name, at, size, known or self._known)
        except NotYetCommittedError:
            if known or self._known:
                raise
            self._known = self._headers()
            if not self._known:
                raise
        return self._peer.stored(name, at, size, self._known)


class Piece(NamedTuple):
    """A part of the range, and the peer that gives it."""

    start: int
    end: int
    peer_id: str


class PeerBytes:
    """The bytes of one range, in pieces from several peers.

    A peer gives the bytes from some position on, until an entry of it proves wrong; from that entry
    on, another one gives them. So each entry may come from another peer, and a peer that has rotted
    in one entry, or cannot read it, still gives all others. Bytes are fetched in chunks. Where a
    peer refuses a chunk, it is asked for blocks, and for the beginning of a block.

    A chunk is the same each time it is read, so it may be verified first and written later.
    """

    def __init__(
        self,
        peers: Mapping[str, Peer],
        start: int,
        end: int,
        segment_size_bytes: int,
        chunks_kept: int = CHUNKS_KEPT,
    ) -> None:
        """Peers are asked in their order. The bytes between two positions may span segments.
        `chunks_kept` bounds the memory; what is not kept is fetched again.
        """
        self._peers = peers
        self._start = start
        self._end = end
        self._segment_size = segment_size_bytes
        self._chunks_kept = chunks_kept
        self._starts: list[int] = []
        """Where each piece begins, in order, and the peer of each; without a gap."""
        self._givers: list[str] = []
        self._kept_pos = start
        """The bytes before this position stay those of their peers."""
        self._rejected: dict[int, set[str]] = {}
        """By position: the peers whose entry there is wrong."""
        self._split: set[_Key] = set()
        """The chunks that a peer does not give as a whole."""
        self._lengths: dict[_Key, int] = {}
        """How many bytes of a block a peer gives, if not all."""
        self._digests: dict[_Key, bytes] = {}
        self._cached: dict[_Key, bytes] = {}
        self._refusals: dict[str, str] = {}
        self._is_behind = False
        """Whether a peer does not know yet that bytes of the range are committed."""
        self._silent: set[str] = set()  # not asked again: each chunk might take a timeout

    def pieces(self, start: int, end: int) -> Iterator[Piece]:
        """Yield the pieces between two positions of a range that was read."""
        while start < end:
            at = bisect_right(self._starts, start) - 1
            following = self._starts[at + 1] if at + 1 < len(self._starts) else self._end
            piece = Piece(start, min(following, end), self._givers[at])
            yield piece
            start = piece.end

    def read(self, start: int, end: int) -> bytes:
        """Return bytes of the range. Raises NoPeerError."""
        if not self._starts:
            self._give_from(self._start)
        parts = []
        while start < end:
            piece = next(self.pieces(start, end))
            low, given = self._given(start, piece.peer_id)
            part = given[start - low : piece.end - low]
            if part:
                parts.append(part)
                start += len(part)
            else:
                self._give_from(start)
        return b"".join(parts)

    def keep(self, pos: int) -> None:
        """Keep the peers that give the bytes before `pos`, which have proved right."""
        self._kept_pos = max(self._kept_pos, pos)

    def reject(self, pos: int, why: str = "its bytes fail the checksums") -> None:
        """Read the entry at `pos`, and what follows, from another peer. Raises NoPeerError."""
        (piece,) = self.pieces(pos, pos + 1)
        self._rejected.setdefault(pos, set()).add(piece.peer_id)
        self._refuse(piece.peer_id, why)
        self._give_from(pos)

    def _refuse(self, peer_id: str, why: str) -> None:
        if peer_id != OWN:  # its damage is why others are asked
            self._refusals[peer_id] = why

    def _give_from(self, pos: int) -> None:
        """Choose the peer that gives the bytes from `pos` on. Raises NoPeerError."""
        unfit = self._silent | self._rejected.get(pos, set())
        fit = (one for one in self._peers if one not in unfit and not self._lacks(pos, one))
        peer_id = None if pos < self._kept_pos else next(fit, None)
        if peer_id is None:
            refusals = sorted(self._refusals.items())
            reasons = "; ".join(f"{peer_id}: {why}" for peer_id, why in refusals)
            raise NoPeerError(
                reasons or "there is no other member",
                may_give_later=self._is_behind or bool(self._silent),
            )
        while self._starts and self._starts[-1] >= pos:
            self._starts.pop()
            self._givers.pop()
        self._starts.append(pos)
        self._givers.append(peer_id)

    def _bounds(self, pos: int, peer_id: str) -> tuple[int, int]:
        """Return the chunk of a position, or its block if the peer does not give whole chunks."""
        segment = pos - pos % self._segment_size
        base, end = max(self._start, segment), min(self._end, segment + self._segment_size)
        low = pos - (pos - base) % CHUNK_BYTES
        if (low, peer_id) not in self._split:
            return low, min(end, low + CHUNK_BYTES)
        low = pos - (pos - base) % BLOCK_BYTES
        return low, min(end, low + BLOCK_BYTES)

    def _lacks(self, pos: int, peer_id: str) -> bool:
        low, high = self._bounds(pos, peer_id)
        return pos >= low + self._lengths.get((low, peer_id), high - low)

    def _given(self, pos: int, peer_id: str) -> tuple[int, bytes]:
        """Return where the chunk or block of a position begins, and what a peer gives of it."""
        low, high = self._bounds(pos, peer_id)
        key = (low, peer_id)
        given = self._cached.get(key)
        if given is None:
            given = self._fetch(low, low + self._lengths.get(key, high - low), peer_id)
            if given is None and high - low > BLOCK_BYTES and peer_id not in self._silent:
                self._split.add(key)
                return self._given(pos, peer_id)
            if given is None:
                given = self._beginning(low, high, peer_id)
                self._lengths[key] = len(given)
            digest = sha256(given).digest()
            if self._digests.setdefault(key, digest) != digest:
                self._refuse(peer_id, "its bytes have changed")
                self._silent.add(peer_id)
                return low, b""
            self._cached[key] = given
            while len(self._cached) > self._chunks_kept:
                self._cached.pop(next(iter(self._cached)))
        return low, given

    def _beginning(self, low: int, high: int, peer_id: str) -> bytes:
        """Return the longest beginning of a block that a peer gives."""
        found, refused = b"", high
        while refused - low - len(found) > 1 and peer_id not in self._silent:
            middle = (low + len(found) + refused) // 2
            given = self._fetch(low, middle, peer_id)
            found, refused = (found, middle) if given is None else (given, refused)
        return found

    def _fetch(self, low: int, high: int, peer_id: str) -> bytes | None:
        """Read bytes of one segment from a peer; None if it does not give them all."""
        if peer_id in self._silent:
            return None
        if low == high:
            return b""
        name, at = disk.file_name(low - low % self._segment_size), low % self._segment_size
        try:
            return self._peers[peer_id].stored(name, at, high - low)
        except LookupError as error:
            self._refuse(peer_id, str(error))
            self._is_behind |= isinstance(error, NotYetCommittedError)
        except OSError as error:
            self._refuse(peer_id, str(error) or type(error).__name__)
            self._silent.add(peer_id)
        return None

"""The reports of a member that its store keeps out of service: why, and what to do.

The member answers only HTTP. Its log is not open, so it neither votes nor serves, and it reports
the indexes of an empty log. If its log is damaged, or its volume fails or is full, auditors may
read the files as they are. Only the manifest says how far they are committed.
"""

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import BinaryIO, Final, Protocol

from dledger_formats.http.status import (
    LeaderView,
    Manifest,
    MembershipRole,
    NodeStatus,
    Role,
    SegmentFile,
    StorageState,
)
from dledger_formats.settings import NodeSettings
from dledger_node.errors import NotYetCommittedError, StoreError
from dledger_node.histogram import Histogram
from dledger_node.http.metrics import Counters
from dledger_node.http.pages import Folder
from dledger_node.http.process_metrics import Recovery
from dledger_node.http.status import NO_BROKER_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The files of a log that is not open, up to its committed index."""

    term: int
    begin_index: int
    committed_index: int
    data: list[SegmentFile]
    index: list[SegmentFile]
    life: str
    """A value that changes when any of the files changes (`Manifest`)."""


_LISTED: Final = frozenset({StorageState.DAMAGED, StorageState.FAILED, StorageState.FULL})
"""States in which auditors may read the files, up to the committed index. Nothing writes there."""

NO_LISTING: Final = Listing(term=0, begin_index=0, committed_index=-1, data=[], index=[], life="")


class ClosedFiles(Protocol):
    """The files of a log that is not open."""

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        """See `pages.Source`."""

    def listing(self) -> Listing:
        """List the files for auditors; blocks. Raises OSError, StoreError."""

    def readable_bytes(self, folder: Folder, name: str) -> int | None:
        """See `pages.Source`; blocks. Raises OSError, StoreError."""

    def read_file(self, folder: Folder, name: str, start: int, end: int) -> bytes:
        """See `pages.Source`."""

    def open_file(self, name: str) -> BinaryIO:
        """See `pages.Source`."""


class Outage:
    """Pages and metrics of a member that is out of service; its `state` and `reason` may change."""

    def __init__(
        self,
        settings: NodeSettings,
        version: str,
        *,
        state: StorageState,
        reason: str,
        closed: ClosedFiles | None = None,
        recovery: Recovery | None = None,
        volume_size_bytes: int = 0,
        volume_available_bytes: int = 0,
    ) -> None:
        """`closed` reads the files of the log, if there are any; `recovery` says how far the
        opening of the log is. A volume's size of 0 means that it is not known.
        """
        self.state = state
        self.reason = reason
        self._settings = settings
        self._version = version
        self._closed = closed
        self._recovery = recovery
        self._volume_size_bytes = volume_size_bytes
        self._volume_available_bytes = volume_available_bytes

    def status(self) -> NodeStatus:
        """Report that the member is not ready, with the reason."""
        return NodeStatus(
            group=self._settings.group,
            self_id=self._settings.self_id,
            role=Role.FOLLOWER,
            term=0,
            leader_id=None,
            master=False,
            ready=False,
            reason=self.reason,
            broker_id=NO_BROKER_ID,
            ledger_begin_index=0,
            ledger_end_index=-1,
            ledger_end_term=-1,
            committed_index=-1,
            durable_index=-1,
            flush_disk_type=self._settings.flush_disk_type,
            peers=dict(self._settings.peers),
            storage=self.state,
            membership=MembershipRole.NONE,
            group_identity=self._settings.group_identity,
            recovery_size_bytes=self._recovery.size_bytes if self._recovery else 0,
            recovery_verified_bytes=self._recovery.verified_bytes if self._recovery else 0,
            volume_size_bytes=self._volume_size_bytes,
            volume_available_bytes=self._volume_available_bytes,
            version=self._version,
        )

    def not_ready_reason(self) -> str:
        """Return why the member is out of service."""
        return self.reason

    def leader_view(self) -> LeaderView:
        """Report that no leader is known."""
        return LeaderView(
            self_id=self._settings.self_id,
            term=0,
            leader_id=None,
            master=False,
            ledger_end_index=-1,
            committed_index=-1,
            group=self._settings.group,
            group_identity=self._settings.group_identity,
        )

    async def leader_changed(self, token: str) -> None:
        """Return if the token differs; else wait forever, since no leader ever becomes known."""
        if self.leader_view().token == token:
            await asyncio.get_running_loop().create_future()

    async def manifest(self) -> Manifest:
        """List the files of a log that cannot be used; the auditors' checks find what is sound.

        The list is empty while the log is being opened, or if it is not known what is committed.
        """
        listing, status = NO_LISTING, self.status()
        if self._closed is not None and self.state in _LISTED:
            with contextlib.suppress(OSError, StoreError):
                listing = await asyncio.to_thread(self._closed.listing)
        if listing is not NO_LISTING:
            status = replace(
                status,
                term=listing.term,
                ledger_begin_index=listing.begin_index,
                ledger_end_index=listing.committed_index,
                committed_index=listing.committed_index,
                durable_index=listing.committed_index,
            )
        return Manifest(status=status, data=listing.data, index=listing.index, life=listing.life)

    async def readable_bytes(self, folder: Folder, name: str) -> int | None:
        """Return how much of a file of the manifest may be read; None if it is not listed."""
        if self._closed is None or self.state not in _LISTED:
            return None
        with contextlib.suppress(OSError, StoreError):
            return await asyncio.to_thread(self._closed.readable_bytes, folder, name)
        return None

    def read_file(self, folder: Folder, name: str, start: int, end: int) -> bytes:
        """Read bytes of a file of the manifest; blocks. Raises OSError, StoreError."""
        return self._files(f"{folder}/{name}").read_file(folder, name, start, end)

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        """Read committed bytes of a data file, sound or not. Raises LookupError, OSError.

        Raises NotYetCommittedError while the store is being closed: its bytes can be read later.
        """
        if self._closed is None:
            raise NotYetCommittedError(f"{name} cannot be read yet: {self.reason}")
        return self._closed.stored(name, at, size, known)

    def open_file(self, name: str) -> BinaryIO:
        """Open a small file or a file of a snapshot; blocks. Raises OSError."""
        return self._files(name).open_file(name)

    def _files(self, name: str) -> ClosedFiles:
        """Return the files that are listed. Raises FileNotFoundError if none are."""
        if self._closed is None or self.state not in _LISTED:
            raise FileNotFoundError(f"{name} cannot be read: {self.reason}")
        return self._closed

    def counters(self) -> Counters:
        """Report zeros, except for the volume."""
        return Counters(
            appends_acknowledged=0,
            appends_refused=0,
            appends_unknown=0,
            appends_repeated=0,
            appends_passed_on=0,
            producers=0,
            append_s=Histogram(()),
            flush_s=Histogram(()),
            leader_changes=0,
            pending_appends=0,
            pending_bytes=0,
            applied_index=-1,
            snapshot_index=-1,
            snapshots_installed=0,
            snapshots_without_room=0,
            connections=0,
            elections={},
            messages_refused={},
            buffered_bytes=0,
            connections_closed={},
            admin_requests_refused={},
            segments_removed=0,
            segments_forced=0,
            healed_ranges=0,
            healed_entries=0,
            mended_ranges=0,
            mended_entries=0,
            mended_bytes=0,
            unmended=False,
            mending_failures=0,
            unmended_removed=0,
            scrub_passes=0,
            scrubbed_bytes=0,
            scrub_position_bytes=0,
            healing_missing_entries=0,
            messages_dropped={},
            links_up={},
            peer_lag_entries={},
            volume_size_bytes=self._volume_size_bytes,
            volume_available_bytes=self._volume_available_bytes,
        )

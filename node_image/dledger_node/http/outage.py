"""The reports of a member that its store keeps out of service: why, and what to do.

The member answers only HTTP. Its log is not open, so it neither votes nor serves, and it reports
the indexes of an empty log.
"""

import asyncio
from collections.abc import Callable
from typing import BinaryIO

from dledger_formats.http.status import (
    LeaderView,
    Manifest,
    MembershipRole,
    NodeStatus,
    Role,
    StorageState,
)
from dledger_formats.settings import NodeSettings
from dledger_node.histogram import Histogram
from dledger_node.http.metrics import Counters
from dledger_node.http.pages import Folder
from dledger_node.http.process_metrics import Recovery
from dledger_node.http.status import NO_BROKER_ID


class Outage:
    """Pages and metrics of a member that is out of service; its `state` and `reason` may change."""

    def __init__(
        self,
        settings: NodeSettings,
        version: str,
        *,
        state: StorageState,
        reason: str,
        stored: Callable[[str, int, int, bytes], bytes] | None = None,
        recovery: Recovery | None = None,
    ) -> None:
        """`stored` reads committed bytes of a data file that is not open, if there are any;
        `recovery` says how far the opening of the log is.
        """
        self.state = state
        self.reason = reason
        self._settings = settings
        self._version = version
        self._stored = stored
        self._recovery = recovery

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
            version=self._version,
        )

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
        """Return if the token is another; a member out of service never learns of a leader."""
        if self.leader_view().token == token:
            await asyncio.get_running_loop().create_future()

    async def manifest(self) -> Manifest:
        """List no files, since none is known to be sound."""
        return Manifest(status=self.status(), data=[], index=[])

    def read_file(self, folder: Folder, name: str, start: int, end: int) -> bytes:
        """Raise FileNotFoundError, since the manifest lists no file."""
        raise FileNotFoundError(f"{folder}/{name} cannot be read: {self.reason}")

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        """Read committed bytes of a data file, sound or not. Raises LookupError, OSError."""
        if self._stored is None:
            raise LookupError(f"{name} cannot be read: {self.reason}")
        return self._stored(name, at, size, known)

    def open_file(self, name: str) -> BinaryIO:
        """Raise FileNotFoundError: whoever repairs the store may be changing its files."""
        raise FileNotFoundError(f"{name} cannot be read: {self.reason}")

    def counters(self) -> Counters:
        """Report zeros."""
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
            scrub_passes=0,
            scrubbed_bytes=0,
            scrub_position_bytes=0,
            healing_missing_entries=0,
            messages_dropped={},
            links_up={},
            peer_lag_entries={},
            volume_size_bytes=0,
            volume_available_bytes=0,
        )

"""The view of a member in service over HTTP: its status, its files and its counters."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from dledger_formats.http.broker_status import BrokerStatus
from dledger_formats.http.status import LeaderView, Manifest, NodeStatus, StorageState
from dledger_node.config import store_folder
from dledger_node.errors import StoreDamagedError
from dledger_node.http import status
from dledger_node.http.auditors import Lack
from dledger_node.http.metrics import Counters
from dledger_node.http.pages import Folder
from dledger_node.raft.core import Raft
from dledger_node.raft.election_causes import ElectionCause
from dledger_node.remoting.gate import Gate
from dledger_node.remoting.links import Links
from dledger_node.services.append import Appends
from dledger_node.services.idempotent import IdempotentAppends
from dledger_node.services.passed_on import PassedOn
from dledger_node.shell.identity import GroupIdentity
from dledger_node.shell.leader_watch import LeaderWatch
from dledger_node.shell.live_settings import LiveSettings
from dledger_node.state_machine.keeper import State
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.served_files import open_served
from dledger_node.volume.group_commit import GroupCommit
from dledger_node.volume.scrub import Scrub
from dledger_node.volume.upkeep import Upkeep


class ProgramView:
    """The status that a program built on the member reports; `report` returns None without one."""

    def __init__(self) -> None:
        self.report: Callable[[], BrokerStatus | None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """Implements `Source` of `http.pages` and of `http.metrics`."""

    live: LiveSettings
    identity: GroupIdentity
    version: str
    core: Raft
    store: LogStore
    group_commit: GroupCommit
    upkeep: Upkeep
    scrub: Scrub
    state: State
    gate: Gate
    links: Links
    appends: Appends
    passed_on: PassedOn
    idempotent: IdempotentAppends
    leader_watch: LeaderWatch
    program: ProgramView = field(default_factory=ProgramView)

    def status(self) -> NodeStatus:
        """Return this member's view of the group."""
        volume = self.upkeep.volume
        node = status.node_status(
            self.core,
            self.live.current,
            self.upkeep.view(),
            self.links.up(),
            self.version,
            identity=self.identity.value,
            settings_problem=self.live.problem,
        )
        broker = self.program.report()
        reason = node.reason or _reason_of(broker)
        storage = node.storage
        if self.scrub.problem and storage is StorageState.SOUND:
            storage = StorageState.HEALING
        return replace(
            node,
            ready=not reason,
            reason=reason,
            broker=broker,
            demands_admin_token=self.live.tokens.is_demanded,
            admin_tokens_version=self.live.tokens.version,
            volume_size_bytes=volume.size_bytes,
            volume_available_bytes=volume.available_bytes,
            scrub_passes=self.scrub.passes,
            scrub_position_bytes=self.scrub.position,
            mended_ranges=self.scrub.totals.ranges,
            unmended=self.scrub.problem,
            storage=storage,
        )

    def not_ready_reason(self) -> str:
        """Return why this member does not serve its role, as `status` says; empty if it does."""
        reason = status.not_ready_reason(self.core, self.upkeep.view())
        return reason or _reason_of(self.program.report())

    def leader_view(self) -> LeaderView:
        """Return the leader, as far as this member knows it."""
        return self.leader_watch.leader_view(self.live.current.group, self.identity.value)

    async def leader_changed(self, token: str) -> None:
        """Return once the token of `leader_view` differs from `token`."""
        await self.leader_watch.leader_changed(token)

    async def manifest(self) -> Manifest:
        """Return every file of the log, readable up to the committed index.

        The first listing reads the first entry of each segment from the disk, so it runs in a
        thread. Raises LookupError if segments are removed meanwhile, and StoreDamagedError, after
        which this member leaves to rebuild its index.
        """
        status, committed_index = self.status(), self.core.readable_index
        life = self.store.life  # read first: a change during the listing must show afterwards
        retention = self.upkeep.retention_state()
        with self._noting_damage():
            data = await asyncio.to_thread(self.store.segments.data, committed_index)
        index = self.store.segments.index(committed_index)
        foreign = await asyncio.to_thread(self.store.segments.foreign)
        return Manifest(
            status=status, data=data, index=index, life=life, retention=retention, foreign=foreign
        )

    async def readable_bytes(self, folder: Folder, name: str) -> int | None:
        """Return how much of a file may be read; None if it is not in the manifest."""
        segments, committed_index = self.store.segments, self.core.readable_index
        with self._noting_damage():
            return await asyncio.to_thread(segments.readable_bytes, folder, name, committed_index)

    def read_file(self, folder: Folder, name: str, start: int, end: int) -> bytes:
        """Return bytes of a file of the manifest; blocks."""
        with self._noting_damage():
            return self.store.segments.read(folder, name, start, end)

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        """Return committed bytes of a data file, sound or not; blocks. Raises LookupError."""
        with self._noting_damage():
            return self.store.segments.stored(name, at, size, self.core.readable_index, known)

    @contextlib.contextmanager
    def _noting_damage(self) -> Iterator[None]:
        """Let the scrub mend damage that a read for others finds, unless the log was cut, replaced
        or closed during the read, or retention has removed its front.
        """
        before = self.store.begin_index, self.store.generation
        try:
            yield
        except StoreDamagedError as error:
            if before == (self.store.begin_index, self.store.generation):
                self.store.damage = self.store.damage or error
            raise

    def open_file(self, name: str) -> BinaryIO:
        """Open a small file or a file of a snapshot; blocks. Raises OSError."""
        return open_served(store_folder(self.live.current), name)

    def counters(self) -> Counters:
        """Return the counters since the start."""
        healing = self.upkeep.healing
        return Counters(
            appends_acknowledged=self.appends.acknowledged,
            appends_refused=self.appends.refused,
            appends_unknown=self.appends.unknown,
            appends_repeated=self.idempotent.repeated,
            appends_passed_on=self.passed_on.count,
            producers=len(self.store.producers.table),
            append_s=self.appends.waited_s,
            flush_s=self.group_commit.flush_s,
            leader_changes=self.leader_watch.changes,
            pending_appends=self.appends.pending_count,
            pending_bytes=self.appends.pending_bytes,
            applied_index=self.state.applied_index,
            snapshot_index=self.state.snapshot_index,
            snapshots_installed=self.state.snapshots_installed,
            snapshots_without_room=self.state.no_room_count,
            segments_removed=self.upkeep.segments_removed,
            segments_forced=self.upkeep.segments_forced,
            healed_ranges=healing.healed_ranges,
            healed_entries=healing.healed_entries,
            mended_ranges=self.scrub.totals.ranges,
            mended_entries=self.scrub.totals.entries,
            mended_bytes=self.scrub.totals.bytes,
            unmended=bool(self.scrub.problem),
            mending_failures=self.scrub.failed,
            unmended_removed=self.scrub.let_go,
            scrub_passes=self.scrub.passes,
            scrubbed_bytes=self.scrub.read_bytes,
            scrub_position_bytes=self.scrub.position,
            healing_missing_entries=healing.missing_entries,
            elections={cause.value: self.core.elections[cause] for cause in ElectionCause},
            messages_refused={cause.value: count for cause, count in self.core.refusals.items()},
            connections=self.gate.connections,
            buffered_bytes=self.gate.received_bytes + self.gate.unsent_bytes,
            connections_closed=self.gate.closed_by_reason,
            admin_requests_refused={lack.value: self.live.tokens.refused[lack] for lack in Lack},
            messages_dropped={link.peer_id: link.dropped for link in self.links},
            links_up=self.links.up(),
            peer_lag_entries=self._peer_lag_entries(),
            volume_size_bytes=self.upkeep.volume.size_bytes,
            volume_available_bytes=self.upkeep.volume.available_bytes,
        )

    def _peer_lag_entries(self) -> dict[str, int]:
        """Return how many of a leader's entries each peer does not hold durably."""
        end_index = self.core.ledger_end_index
        matches = self.core.match_indexes()
        return {peer_id: max(0, end_index - index) for peer_id, index in matches.items()}


def _reason_of(broker: BrokerStatus | None) -> str:
    """Return why a broker does not serve; empty if it does, or if there is none."""
    return broker.reason if broker is not None else ""

"""Repair the store of a member that is out of service.

First each damaged range of committed entries is mended in place (`mending`), and the member returns
with its vote. If damage is left, the member surveys it, asks the peers, decides, and sets files
aside; then it joins its group, and `progress` watches it until it is healed.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Final

from dledger_formats.peers import split_address
from dledger_formats.settings import NodeSettings, OnDamage
from dledger_node.config import store_folder
from dledger_node.daemon_call import call_in_daemon
from dledger_node.errors import StoreDamagedError, StoreError, StoreInUseError
from dledger_node.healing import set_aside as files
from dledger_node.healing.closed_log import shape_of
from dledger_node.healing.http_peer import HttpPeer
from dledger_node.healing.mending import CannotMendError, MendedTotals, Mender
from dledger_node.healing.peer_bytes import Peer
from dledger_node.healing.repair_plan import (
    FRONT_IS_LOST,
    REPAIRABLE,
    DamagedMember,
    PeerReport,
    RepairAction,
    RepairPlan,
    plan_repair,
)
from dledger_node.healing.set_aside import Survey
from dledger_node.remoting.asking import ask_all
from dledger_node.store.log.damaged_ranges import damaged_ranges
from dledger_node.store.small_files.checkpoint import load_checkpoint
from dledger_node.store.small_files.lock import FolderLock

logger = logging.getLogger(__name__)

ASK_TIMEOUT_S: Final = 2.0
MEND_PATIENCE_S: Final = 900.0
"""How long a member tries to mend its log while a peer that may have the bytes does not give them.
Only then may it set aside sound segments too: a peer's host may need minutes to come back.
"""


class StoreRepair:
    """Repairs a damaged store that is not open."""

    def __init__(
        self,
        settings: NodeSettings,
        now: Callable[[], datetime],
        mended: MendedTotals | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now` returns the time in UTC, for the names of folders. `mended` counts the ranges."""
        self.mended = mended or MendedTotals()
        self._settings = settings
        self._now = now
        self._folder = store_folder(settings)
        self._shape = shape_of(settings)
        self._monotonic_s = monotonic_s
        self._mend_until_s: float | None = None
        self._peers = {
            peer_id: split_address(address)
            for peer_id, address in settings.known_peers.items()
            if peer_id != settings.self_id
        }

    async def repair(self, error: StoreDamagedError) -> str:
        """Make the store fit to be opened; return why it was not repaired, or an empty string.

        The caller calls this once two openings in a row have found damage, so that damage which a
        second opening does not find costs nothing.
        """
        if error.damage not in REPAIRABLE:
            return ""
        if self._settings.on_damage is OnDamage.STAY_OUT:
            return "Not repaired: the setting on_damage says to stay out"
        try:
            with contextlib.closing(FolderLock(self._folder)):
                obstacle = await self._mend()
                return obstacle or await self._repair(error)
        except StoreInUseError:
            raise
        except (StoreError, OSError) as failure:
            return f"The repair failed: {failure}"

    def note_opened(self) -> None:
        """Note that the store was opened: if it is damaged later, the peers get the whole time."""
        self._mend_until_s = None

    async def _mend(self) -> str:
        """Mend the log in place; return why the member must wait, or an empty string."""
        peers = {
            peer_id: HttpPeer(
                self._settings.http_address_of(peer_id), self._settings.admin_token_file
            )
            for peer_id in self._peers
        }
        try:
            await call_in_daemon("mending", partial(self._mend_all, peers))
        except CannotMendError as failure:
            if failure.may_succeed_later and (rest_s := self._patience_s()) > 0:
                return (
                    f"Not mended yet: {failure}. Unless a peer gives the bytes within "
                    f"{rest_s:.0f} s, this member sets its log aside from there on"
                )
            logger.warning("not mended: %s", failure)
        except IndexError as error:
            logger.warning("not mended: the log cannot be read: %s", error)
        else:
            self._mend_until_s = None
        finally:
            for peer in peers.values():
                peer.close()
        return ""

    def _patience_s(self) -> float:
        """Return how long this member still waits for its peers, counted from the first failure."""
        now_s = self._monotonic_s()
        if self._mend_until_s is None:
            self._mend_until_s = now_s + MEND_PATIENCE_S
        return self._mend_until_s - now_s

    def _mend_all(self, peers: Mapping[str, Peer]) -> None:
        """Mend every range that can be mended; raise CannotMendError for the first that cannot."""
        checkpoint = load_checkpoint(self._folder)
        if checkpoint is None:
            return
        mender = Mender(self._shape, peers, create_files=True)
        failures = []
        for damaged in damaged_ranges(self._shape, checkpoint):
            try:
                mended = mender.mend(damaged, checkpoint)
            except CannotMendError as failure:
                failures.append(failure)
            else:
                self.mended.add(mended)
                logger.warning("mended %s", mended)
        if failures:
            raise failures[0]  # all after its range would be set aside, so it alone decides

    async def _repair(self, error: StoreDamagedError) -> str:
        found = await call_in_daemon("survey", partial(self._survey, error))
        plan = plan_repair(self._damaged_member(found), await self._ask_peers())
        if plan.action is RepairAction.STAY_OUT:
            return f"Not repaired: {plan.reason}"
        await asyncio.to_thread(self._carry_out, plan, found, error)
        self._mend_until_s = None
        return ""

    def _survey(self, error: StoreDamagedError) -> Survey:
        return files.survey(
            self._folder,
            segment_size_bytes=self._settings.segment_size_bytes,
            index_segment_size_bytes=self._settings.index_segment_size_bytes,
            front_is_lost=error.damage in FRONT_IS_LOST,
        )

    def _damaged_member(self, found: Survey) -> DamagedMember:
        return DamagedMember(
            self_id=self._settings.self_id,
            peer_ids=tuple(sorted(self._peers)),
            log_is_sound=found.log_is_sound,
            log_is_empty=found.end_index < 0,
            index_is_sound=found.index_is_sound,
            hard_state=found.hard_state,
            set_aside_count=len(files.list_set_aside(self._folder)),
        )

    async def _ask_peers(self) -> dict[str, PeerReport]:
        answers = await ask_all(self._peers, self._settings.group, ASK_TIMEOUT_S)
        return {
            peer_id: PeerReport(
                leader_id=answer.leader_id,
                term=answer.term,
                joining=answer.joining,
                voters=answer.voters,
            )
            for peer_id, answer in answers.items()
        }

    def _carry_out(self, plan: RepairPlan, found: Survey, error: StoreDamagedError) -> None:
        moment = f"{self._now():%Y%m%dT%H%M%S.%fZ}"
        match plan.action:
            case RepairAction.REBUILD_INDEX:
                files.set_aside_index(self._folder, moment=moment)
                logger.warning("set the index files aside to rebuild them: %s", error)
            case RepairAction.JOIN:
                files.set_aside_log(self._folder, found, verdict=error.damage.value, moment=moment)
                logger.warning(
                    "kept the log up to entry %d and set the rest aside; this member joins its "
                    "group to fetch it again: %s", found.end_index, error,
                )  # fmt: skip
            case RepairAction.REOPEN | RepairAction.STAY_OUT:
                pass

"""Healing of a member that is out of service: look, ask the others, decide, set aside.

What of it needs the group happens once the member is back, as one that joins (`healing`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from dledger_formats.settings import NodeSettings, OnDamage
from dledger_node.config import split_address, store_folder
from dledger_node.errors import StoreDamagedError, StoreError, StoreInUseError
from dledger_node.healing import set_aside as files
from dledger_node.healing.decision import CURABLE, FRONT_IS_LOST, Case, Plan, Remedy, Word, plan
from dledger_node.healing.set_aside import Survey
from dledger_node.remoting.asking import ask_all
from dledger_node.store.small_files.lock import FolderLock

logger = logging.getLogger(__name__)

ASK_TIMEOUT_S: Final = 2.0


class Healer:
    """Does what can be done about a damaged store that is not open."""

    def __init__(self, settings: NodeSettings, now: Callable[[], datetime]) -> None:
        """`now` tells the time, in UTC: folders are named by it."""
        self._settings = settings
        self._now = now
        self._folder = store_folder(settings)
        self._others = {
            peer_id: split_address(address)
            for peer_id, address in settings.known_peers.items()
            if peer_id != settings.self_id
        }

    async def heal(self, error: StoreDamagedError) -> str:
        """Make the store one that can be opened; returns why that was not done, or nothing.

        To be called when the damage was found twice in a row, so that what a second look does not
        find costs nothing.
        """
        if error.damage not in CURABLE:
            return ""
        if self._settings.on_damage is OnDamage.STAY_OUT:
            return "It is not healed, since the settings say so"
        try:
            with contextlib.closing(FolderLock(self._folder)):
                return await self._heal(error)
        except StoreInUseError:
            raise
        except (StoreError, OSError) as trouble:
            return f"It could not be healed: {trouble}"

    async def _heal(self, error: StoreDamagedError) -> str:
        found = await asyncio.to_thread(self._survey, error)
        decided = plan(self._case(found), await self._words())
        if decided.remedy is Remedy.STAY_OUT:
            return f"It is not healed: {decided.reason}"
        await asyncio.to_thread(self._carry_out, decided, found, error)
        return ""

    def _survey(self, error: StoreDamagedError) -> Survey:
        return files.survey(
            self._folder,
            segment_size_bytes=self._settings.segment_size_bytes,
            index_segment_size_bytes=self._settings.index_segment_size_bytes,
            front_is_lost=error.damage in FRONT_IS_LOST,
        )

    def _case(self, found: Survey) -> Case:
        return Case(
            self_id=self._settings.self_id,
            others=tuple(sorted(self._others)),
            log_is_sound=found.log_is_sound,
            log_is_empty=found.end_index < 0,
            index_is_sound=found.index_is_sound,
            memory=found.memory,
            set_aside_count=len(files.set_aside(self._folder)),
        )

    async def _words(self) -> dict[str, Word]:
        answers = await ask_all(self._others, self._settings.group, ASK_TIMEOUT_S)
        return {
            peer_id: Word(
                leader_id=said.leader_id,
                term=said.term,
                joining=said.joining,
                voters=said.voters,
            )
            for peer_id, said in answers.items()
        }

    def _carry_out(self, decided: Plan, found: Survey, error: StoreDamagedError) -> None:
        moment = f"{self._now():%Y%m%dT%H%M%S.%fZ}"
        match decided.remedy:
            case Remedy.NEW_INDEX:
                files.set_aside_index(self._folder, moment=moment)
                logger.warning("the index files are made anew, since: %s", error)
            case Remedy.JOIN:
                files.set_aside_log(self._folder, found, verdict=error.damage.value, moment=moment)
                logger.warning(
                    "the log is kept up to entry %d, and the group is joined for what follows, "
                    "since: %s", found.end_index, error,
                )  # fmt: skip
            case Remedy.LOOK_AGAIN | Remedy.STAY_OUT:
                pass

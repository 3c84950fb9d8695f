"""Finds out which of the namespaces to watch the API server lets this process read.

The permissions for one namespace can be missing while those for the others exist: they are deleted
with their namespace, and a new one of its name lacks them until somebody grants them. Such a
namespace is left out until it can be read, and the operator continues in the others.

A role that lacks only some kinds belongs to another release, whose pods work there with the kinds
that they know. So a process does not begin before it may read all kinds, and one that has begun
continues without those that it may no longer read.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final, Protocol

from dledger_operator.clients.errors import KubeError, PartlyRefusedError, RefusedError

logger = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""Time between two checks of the namespaces that are left out."""
AGAIN_S: Final = 1.0
"""A namespace that is newly refused is checked once more after this time."""
LOOKS_TO_TAKE_BACK: Final = 2
"""A namespace that was left out is taken back after it could be read so many times in a row."""
REFUSED_S_MAX: Final = 60.0
"""A namespace is left out once everything in it has been refused for longer. Namespaces are taken
back no sooner than this after others were. That restarts the watch of the others, so this bounds
how often permissions that come and go can disturb them.
"""


class ServedApi(Protocol):
    """The API request of this behavior."""

    async def check_served(self, namespace: str | None) -> None:
        """Check that the kinds of this project can be read. Raises KubeError if not: RefusedError
        if none of them may be read, PartlyRefusedError if only some may not.
        """


class ServedNamespaces:
    """The namespaces to watch, and those of them that are left out."""

    def __init__(
        self, api: ServedApi, namespaces: Collection[str], *, on_left_out: Callable[[int], None]
    ) -> None:
        """Create the set; without `namespaces`, everything is watched. `on_left_out` is called with
        the number of namespaces that are left out.
        """
        self._api = api
        self._namespaces = namespaces
        self._on_left_out = on_left_out
        self._left_out: frozenset[str] = frozenset()
        self._has_begun = False
        self._none_back_s = 0.0
        """For how long no namespace is taken back, because one was taken back before."""

    @property
    def watched(self) -> tuple[str, ...]:
        """The namespaces that can be read; empty if everything is watched."""
        return tuple(each for each in self._namespaces if each not in self._left_out)

    async def look(self) -> None:
        """Find out which namespaces can be read.

        Raises KubeError if none can, or if the API server does not answer; NotServedError if the
        CRDs are missing; PartlyRefusedError, the first time, if one lacks some of the kinds. Later,
        such a namespace stays watched or left out, as it was.
        """
        refusals: dict[str, RefusedError] = {}
        for each in self._namespaces:
            if error := await self._refusal(each):
                refusals[each] = error
        if refusals.keys() - self._left_out:
            await asyncio.sleep(AGAIN_S)
            for each in refusals.keys() - self._left_out:
                if error := await self._refusal(each):
                    refusals[each] = error
                else:
                    del refusals[each]
        if not self._namespaces and (error := await self._refusal(None)):
            raise error
        if refusals and len(refusals) == len(set(self._namespaces)):
            raise next(iter(refusals.values()))
        for each in refusals.keys() - self._left_out:
            logger.error("%s is left out until it can be read: %s", each, refusals[each])
        self._left_out, self._has_begun = frozenset(refusals), True
        self._on_left_out(len(refusals))

    async def _refusal(self, namespace: str | None) -> RefusedError | None:
        """Return why a namespace is to be left out; None if it is not."""
        try:
            await self._api.check_served(namespace)
        except PartlyRefusedError as error:
            if not self._has_begun:
                raise
            return error if namespace in self._left_out else None
        except RefusedError as error:
            return error
        return None

    async def changed(self, refused_for_s: Callable[[str], float]) -> None:
        """Wait until another look would have another outcome. `refused_for_s` returns for how many
        seconds everything in a namespace has been refused.
        """
        if len(self._namespaces) < 2:
            await asyncio.Event().wait()  # none is left out
        readable = dict.fromkeys(self._left_out, 0)
        while True:
            await asyncio.sleep(LOOK_S)
            self._none_back_s -= LOOK_S
            for each in sorted(self._left_out):
                readable[each] = readable[each] + 1 if await self._can_be_read(each) else 0
                if readable[each] >= LOOKS_TO_TAKE_BACK and self._none_back_s <= 0:
                    logger.info("%s can be read now", each)
                    self._none_back_s = REFUSED_S_MAX
                    return
            refused = [each for each in self.watched if refused_for_s(each) > REFUSED_S_MAX]
            # If all are refused, the problem is that of the whole server, which kopf waits out.
            if 0 < len(refused) < len(self.watched):
                return

    async def _can_be_read(self, namespace: str) -> bool:
        try:
            await self._api.check_served(namespace)
        except KubeError:
            return False
        return True

"""Reads Nodes again at intervals, since a watch can be silent although they change.

Without this, a drain could go unnoticed, since the operator knows only what the watch reports. A
LIST of all Nodes is large in a large cluster, so it is as rare as that of a group's pods.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final, Protocol

from dledger_operator.behaviors.handover.nodes import Nodes
from dledger_operator.behaviors.loops import Pace, Wake, repeat

logger = logging.getLogger(__name__)

PACE: Final = Pace(interval_s=60.0, gap_s=1.0, failure_gap_s_max=60.0)
AT_ONCE: Final = 250
"""How many Nodes are processed in one turn of the event loop, which also follows leaders."""


class NodeApi(Protocol):
    """The API request of this behavior."""

    async def nodes(self) -> Sequence[Mapping[str, Any]]:
        """List all Nodes, as new as etcd."""


class NodeReads:
    """Reads Nodes again, and stores what the watch has not reported."""

    def __init__(
        self, api: NodeApi, nodes: Nodes, random: Random, on_differs: Callable[[str], None]
    ) -> None:
        """Create; `on_differs` is called with the name of each Node of which anything that matters
        has changed without an event.
        """
        self._api = api
        self._nodes = nodes
        self._random = random
        self._on_differs = on_differs

    async def run(self) -> None:
        """Read Nodes again until cancelled, if they may be read."""
        if not self._nodes.readable:
            return
        await asyncio.sleep(PACE.interval_s)  # a watch begins with all Nodes
        await repeat(
            self.run_once,
            what="reading Nodes again",
            wake=Wake(),
            pace=PACE,
            random=self._random,
            on_failure=lambda _: None,
        )

    async def run_once(self) -> None:
        """Read all Nodes once."""
        known, bodies = self._nodes.known_versions(), await self._api.nodes()
        for first in range(0, len(bodies), AT_ONCE):
            self._tell(self._nodes.listed(known, bodies[first : first + AT_ONCE]))
            await asyncio.sleep(0)
        self._tell(self._nodes.missing(known, {body["metadata"]["name"] for body in bodies}))

    def _tell(self, names: Iterable[str]) -> None:
        for name in names:
            logger.info("node %s has changed, and the watch has not reported it yet", name)
            self._on_differs(name)

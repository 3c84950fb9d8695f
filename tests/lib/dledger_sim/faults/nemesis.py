"""The nemesis: draws the strikes of a run, their times and their targets.

A strike is a list of acts with delays, which `stress` performs. Faults of single messages and
flushes are not strikes: `network` and `disk` draw them.
"""

import random
from collections.abc import Callable
from typing import Final

from dledger_sim.faults import floods, member_faults, network_faults, strikes
from dledger_sim.faults.disjoint_rot import rot_apart
from dledger_sim.faults.planning import Planned
from dledger_sim.faults.rot_lives import rot_behind, rot_entry
from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.moments import Moment

HEAL_RATE: Final = 0.25
AMBUSH_CHANCES_MAX: Final = 20
"""Divisor of the ambush rate for the moments that come with every batch."""
COMMON_MOMENTS: Final = (Moment.APPEND_SENT, Moment.FLUSH_BEGUN, Moment.TRUNCATED)


class Nemesis:
    """Draws strikes within the conditions of a group."""

    def __init__(self, cluster: SimCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        conditions = cluster.conditions
        self._strikes = [fault for fault in conditions.faults if fault not in AMBUSHES_ONLY]
        self._ambushes = {
            moment: [
                fault for fault in AMBUSHES.get(moment, AIMED_FAULTS) if fault in conditions.faults
            ]
            for moment in Moment
        }
        common = conditions.ambush / AMBUSH_CHANCES_MAX
        self._ambush_rates = {
            moment: common if moment in COMMON_MOMENTS else conditions.ambush
            for moment in Moment
            if self._ambushes[moment] and moment.value in conditions.moments
        }

    def strike(self) -> Planned:
        """Draw an allowed strike on some member, or heal the network."""
        faults = self._strikes
        if not faults or self._rng.random() < HEAL_RATE:
            return [(1, ("heal",))]
        return FAULTS[self._rng.choice(faults)](self._cluster, self._target(), self._rng)

    def at(self, moment: Moment, member_id: str) -> Planned:
        """Draw, with the rate of this moment, a strike on a member within a few round trips.

        The rarest bugs of Raft need several short reigns in a row (Raft paper, figure 8).
        """
        rate = self._ambush_rates.get(moment, 0.0)
        cluster, rng = self._cluster, self._rng
        if not rate or rng.random() >= rate:
            return []
        conditions = cluster.conditions
        at_once = moment is Moment.STANDS or rng.random() < 0.3
        reach_us = 1 if at_once else 4 * conditions.delay_us + conditions.flush_us
        delay_us = 1 + int(rng.random() * reach_us)
        planned = FAULTS[rng.choice(self._ambushes[moment])](cluster, member_id, rng)
        return [(delay_us + after_us, act) for after_us, act in planned]

    def _target(self) -> str:
        cluster = self._cluster
        leaders = [member.member_id for member in cluster.members.values() if member.leads]
        if leaders and self._rng.random() < cluster.conditions.leader_bias:
            return self._rng.choice(leaders)
        return self._rng.choice(cluster.conditions.member_ids)


FAULTS: Final[dict[str, Callable[[SimCluster, str, random.Random], Planned]]] = {
    "reshape": member_faults.reshape,
    "crash": member_faults.crash,
    "lose_volume": member_faults.lose_volume,
    "remove_front": member_faults.remove_front,
    "power_cut": member_faults.power_cut,
    "isolate": network_faults.isolate,
    "disconnect": network_faults.disconnect,
    "late_answers": network_faults.late_answers,
    "hide": network_faults.hide,
    "hold_up": network_faults.hold_up,
    "split": network_faults.split,
    "cut_one_way": network_faults.cut_one_way,
    "bridge": network_faults.bridge,
    "reset_link": network_faults.reset_link,
    "clog": network_faults.clog,
    "swizzle_clog": network_faults.swizzle_clog,
    "pause": member_faults.pause,
    "fill_disk": member_faults.fill_disk,
    "older_disk": member_faults.older_disk,
    "power_loss": member_faults.power_loss,
    "power_losses": member_faults.power_losses,
    "late_term": network_faults.late_term,
    "rot_snapshot": member_faults.rot_snapshot,
    "leave_behind": member_faults.leave_behind,
    "rot_entry": rot_entry,
    "rot_behind": rot_behind,
    "rot_apart": rot_apart,
    "flood": floods.flood,
    **strikes.STRIKES,
}
ANYWHERE: Final = tuple(FAULTS)[: list(FAULTS).index("older_disk")]
"""Faults that need no conditions of their own."""
AIMED_FAULTS: Final = (
    "crash", "lose_volume", "older_disk", "isolate", "disconnect", "cut_one_way", "reset_link",
    "clog", "pause",
)  # fmt: skip
AMBUSHES: Final = {
    Moment.ELECTED: (*AIMED_FAULTS, "hide", "reshape", "rot_entry"),
    Moment.CHANGES: (*AIMED_FAULTS, "reshape"),
    Moment.STANDS: ("hold_up",),
    Moment.FETCHES: (*AIMED_FAULTS, "remove_front", "rot_snapshot"),
    Moment.HANDS_OVER: ("isolate", "disconnect", "crash", "late_answers"),
}
"""Strikes at a moment; any of AIMED_FAULTS at the other moments."""
AMBUSHES_ONLY: Final = ("hide", "hold_up", "reshape")
"""Strikes that make sense only at their moments."""

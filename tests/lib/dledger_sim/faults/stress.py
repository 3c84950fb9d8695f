"""The faulty part of a seed's run: requests of clients and strikes of the nemesis.

Each request and fault is drawn, performed as an act, and recorded with its time.
"""

import random
from collections.abc import Callable
from typing import Final

from dledger_node.raft.member_state import Role
from dledger_sim.faults import broker_lives
from dledger_sim.faults.acts import Act, perform
from dledger_sim.faults.nemesis import Nemesis
from dledger_sim.faults.planning import Planned
from dledger_sim.faults.reshaping import likely_kinds
from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.moments import Moment

ANYWHERE_RATE: Final = 0.7
"""Share of the reads that go to any member, if members that do not lead answer them."""


class Stress:
    """Clients and a nemesis, for a number of events."""

    def __init__(self, cluster: SimCluster, rng: random.Random, event_count: int) -> None:
        self.acts: list[tuple[int, Act]] = []
        """The performed acts with their times in µs."""
        self._cluster = cluster
        self._rng = rng
        self._event_count = event_count
        self._member_ids = cluster.conditions.member_ids
        self._proposal_interval_us = cluster.conditions.proposal_interval_us
        self._strike_interval_us = cluster.conditions.strike_interval_us
        self._nemesis = Nemesis(cluster, rng)

    def run(self) -> None:
        """Execute the events."""
        cluster = self._cluster
        self._again(self._proposal_interval_us, self._ask)
        if self._strike_interval_us:
            self._again(self._strike_interval_us, self._strike)
        if cluster.conditions.ambush:
            cluster.on_moment = self._ambush
        while cluster.event_count < self._event_count:
            cluster.step()
        cluster.on_moment = None

    def _act(self, act: Act) -> None:
        if self._cluster.event_count > self._event_count:
            return  # planned under faults, but the calm has begun
        self.acts.append((self._cluster.now_us, act))
        perform(self._cluster, act)

    def _plan(self, planned: Planned) -> None:
        for delay_us, act in planned:
            self._cluster.act_after(delay_us, self._act, act)

    def _again(self, mean_us: int, action: Callable[[], None]) -> None:
        if self._cluster.event_count < self._event_count:
            delay_us = 1 + int(self._rng.expovariate(1 / mean_us))
            self._cluster.act_after(delay_us, action)

    def _ask(self) -> None:
        self._act(self._request())
        self._again(self._proposal_interval_us, self._ask)

    def _strike(self) -> None:
        self._plan(self._nemesis.strike())
        self._again(self._strike_interval_us, self._strike)

    def _ambush(self, moment: Moment, member_id: str) -> None:
        self._plan(self._nemesis.at(moment, member_id))

    def _change(self, member_id: str) -> Act:
        """Draw a membership change, in at least three of ten cases of the asked member itself."""
        raft, random_ = self._cluster.members[member_id].raft, self._rng.random
        target = member_id
        if random_() < 0.7:
            target = self._member_ids[int(random_() * len(self._member_ids))]
        if raft is None:
            return ("change", member_id, "remove", target)
        kinds = likely_kinds(raft.membership, target)
        return ("change", member_id, kinds[int(random_() * len(kinds))], target)

    def _request(self) -> Act:
        """Draw a request; nine of ten go to a member that considers itself the leader."""
        cluster, random_ = self._cluster, self._rng.random
        conditions = cluster.conditions
        members = self._member_ids
        believers = [
            member.member_id
            for member in cluster.members.values()
            if member.raft is not None and member.raft.role is Role.LEADER
        ]
        asked = believers if believers and random_() < 0.9 else members
        member_id = asked[int(random_() * len(asked))]
        if conditions.transfers and random_() < conditions.transfers:
            return ("transfer", member_id, members[int(random_() * len(members))])
        if conditions.broker_speed:
            return broker_lives.request(conditions, believers, self._rng)
        if conditions.changes and random_() < conditions.changes:
            return self._change(member_id)
        client = int(random_() * conditions.client_count)
        if random_() < conditions.reads:
            if conditions.follower_reads and random_() < ANYWHERE_RATE:
                member_id = members[int(random_() * len(members))]
            if random_() < 0.5:
                return ("read_index", member_id, client)
            index = int(random_() * (len(cluster.checker.committed) + 1))
            return ("read", member_id, index, client)
        count = 1 + int(random_() * conditions.proposal_entries_max)
        return ("append", member_id, count, client)

"""A leader that counts clients, and members that report theirs to it, without a network."""

import random
from collections.abc import Iterable
from typing import Any, Final

from dledger_broker.door.between_members.door_frames import PRESENCE, PresenceNote, decode_presence
from dledger_broker.door.consumer_groups.presence import ALIVE_S, PART_MAX, Presence
from dledger_broker.leading.client_leases import ADOPTED_S, TICK_S, ClientLeases, Membership
from dledger_broker.metrics import BrokerCounters
from dledger_formats.rocketmq.answers import encode_answer
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_node.services.drafts import Outcome

MEMBERS: Final = ("n0", "n1", "n2")


class Leader:
    """A leader whose state has memberships, and a clock; removals are applied at once."""

    def __init__(self, *memberships: Membership, now_s: float = 0.0) -> None:
        self.now_s = now_s
        self.members = set(memberships)
        self.term, self.is_proven = 1, True
        self.state = self
        self.leases = ClientLeases(
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            lambda: self.now_s,
            lambda: MEMBERS,
        )

    def clients_by_group(self) -> dict[str, list[str]]:
        by_group: dict[str, list[str]] = {}
        for group, client_id in sorted(self.members):
            by_group.setdefault(group, []).append(client_id)
        return by_group

    def consumer(self, group: str, client_id: str) -> object:
        return "there" if (group, client_id) in self.members else None

    def change(self, left: Any) -> Membership:
        return left.group, left.client_id

    def propose(self, records: Iterable[Membership], done: Any, *, arrived_s: float | None) -> None:
        self.members -= {*records}
        done(Outcome.COMMITTED)

    def join(self, membership: Membership) -> None:
        self.members.add(membership)
        self.leases.joined(membership)

    def note(self, member: str, *seen: Membership, first: bool = False) -> bool:
        return self.leases.noted(member, seen, (), is_first=first)

    def wait(self, seconds: float, *speaking: str) -> None:
        """Let time pass, in which these members report their presence every 5 s."""
        end_s, spoken_s = self.now_s + seconds, self.now_s
        while self.now_s < end_s:
            self.now_s = min(end_s, self.now_s + TICK_S)
            if self.now_s >= spoken_s + ALIVE_S:
                spoken_s = self.now_s
                for member in speaking:
                    self.note(member)
            self.leases.tick()


class Member:
    """A member with clients, whose reports may get lost."""

    def __init__(self, member_id: str, group: "Group") -> None:
        self.member_id = member_id
        self.counters = BrokerCounters()
        self.clients: set[Membership] = set()
        self._group = group
        self.presence = Presence(
            member_id,
            self,
            self,
            lambda: group.now_s,
            lambda: group.has_leader,  # type: ignore[arg-type]
        )

    def held(self) -> list[Membership]:
        return sorted(self.clients)

    def take(self, call: Any) -> None:
        assert self._group.has_leader
        assert call.command.code == PRESENCE
        note = decode_presence(call.command.body)
        code = ResponseCode.SERVICE_NOT_AVAILABLE
        if not self._group.is_losing():
            knows_all = self._group.take(note)
            code = ResponseCode.SUCCESS if knows_all else ResponseCode.QUERY_NOT_FOUND
        if self._group.is_losing():  # the answer is lost, and the request ends without one
            code = ResponseCode.SERVICE_NOT_AVAILABLE
        call.channel.send(encode_answer(call.command.opaque, code))

    def connect(self, client: Membership) -> None:
        self.clients.add(client)
        self.presence.seen(client)

    def disconnect(self, client: Membership) -> None:
        self.clients.discard(client)
        self.presence.gone(client)


class Group:
    """Three members, a leader, and a network that loses some reports."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.losses = 0.5
        self.has_leader = True
        self.leader = Leader()
        self.members = [Member(member_id, self) for member_id in MEMBERS]
        self.leader.now_s += 2 * ADOPTED_S  # no process has just started

    @property
    def now_s(self) -> float:
        return self.leader.now_s

    def is_losing(self) -> bool:
        return self.rng.random() < self.losses

    def take(self, note: PresenceNote) -> bool:
        assert len(note.seen) + len(note.gone) <= PART_MAX
        return self.leader.leases.noted(
            note.member, note.seen, note.gone, is_first=note.is_first, is_new=note.is_new,
            is_last=note.is_last, ages_s=note.ages_s,
        )  # fmt: skip

    def elect(self) -> None:
        self.leader = Leader(*self.leader.members, now_s=self.now_s)
        for member in self.members:
            member.presence.leader_changed()

    def tick(self) -> None:
        self.leader.now_s += 0.1
        for member in self.members:
            member.presence.tick()
        self.leader.leases.tick()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        end_s = self.now_s + seconds
        while self.now_s < end_s - 0.05:
            self.tick()

    def heartbeats(self) -> None:
        """Let every client send its heartbeat to its members; a removed client joins again."""
        for member in self.members:
            for client in member.held():
                member.presence.seen(client)
                if client not in self.leader.members:
                    self.leader.join(client)

    def play(self) -> None:
        clients = [("g", f"c{number}") for number in range(6)]
        for _ in range(300):
            member, client = self.rng.choice(self.members), self.rng.choice(clients)
            match self.rng.randrange(12):
                case 0 | 1:
                    member.connect(client)
                    if client not in self.leader.members:
                        self.leader.join(client)
                case 2 | 3 if client in member.clients:
                    member.disconnect(client)
                case 4:
                    self.elect()
                case 5:
                    self.heartbeats()
                case 6:
                    self.has_leader = not self.has_leader
                case _:
                    self.tick()

"""The network: loss, duplication and delay of messages."""

from dledger_sim.group.conditions import Conditions
from dledger_sim.runs.choices import Choices

SHORTEST_US = 50


class SimLink:
    """One direction between two members."""

    __slots__ = (
        "clogged_until_us",
        "cut",
        "delay_site",
        "duplicate_site",
        "last_arrival_us",
        "loss_site",
        "resets",
    )

    def __init__(self, sender: str, receiver: str) -> None:
        self.cut = False
        self.clogged_until_us = 0
        """Messages sent before this time arrive no earlier."""
        self.resets = 0
        """Number of reconnects; messages sent before the last one are lost."""
        self.last_arrival_us = 0
        self.loss_site = f"loss {sender}>{receiver}"
        self.duplicate_site = f"duplicate {sender}>{receiver}"
        self.delay_site = f"delay {sender}>{receiver}"


class SimNetwork:
    """The links between all members, one for each direction."""

    def __init__(self, conditions: Conditions, choices: Choices) -> None:
        self.conditions = conditions
        self.fault_count = 0
        """Messages that were lost, duplicated or held back."""
        self._choices = choices
        self.links = {
            sender: {
                receiver: SimLink(sender, receiver)
                for receiver in conditions.member_ids
                if receiver != sender
            }
            for sender in conditions.member_ids
        }

    def cut(self, sender: str, receiver: str) -> None:
        """Drop all messages from one member to another."""
        self.links[sender][receiver].cut = True

    def clog(self, sender: str, receiver: str, until_us: int) -> None:
        """Hold back messages from one member to another; at `until_us`, all arrive together."""
        self.links[sender][receiver].clogged_until_us = until_us

    def drop_what_travels(self, sender: str = "") -> None:
        """Drop all messages in transit from one member, or from all members."""
        for member_id, links in self.links.items():
            for link in links.values():
                link.resets += sender in ("", member_id)

    def restore(self) -> None:
        """Remove all cuts and clogs."""
        for links in self.links.values():
            for link in links.values():
                link.cut = False
                link.clogged_until_us = 0

    def arrivals_us(self, now_us: int, link: SimLink) -> tuple[int, ...]:
        """Return the arrival times of a message sent now: none, one or two."""
        conditions, choices = self.conditions, self._choices
        if link.cut or choices.chance(link.loss_site, conditions.loss):
            self.fault_count += 1
            return ()
        if choices.chance(link.duplicate_site, conditions.duplicate):
            self.fault_count += 1
            return (self._arrival_us(now_us, link), self._arrival_us(now_us, link))
        return (self._arrival_us(now_us, link),)

    def _arrival_us(self, now_us: int, link: SimLink) -> int:
        travel_us = self._choices.delay_us(link.delay_site, self.conditions.delay_us)
        arrival_us = now_us + SHORTEST_US + travel_us
        if arrival_us < link.clogged_until_us:
            self.fault_count += 1
            arrival_us = link.clogged_until_us
        if self.conditions.in_order:
            arrival_us = max(arrival_us, link.last_arrival_us + 1)
            link.last_arrival_us = arrival_us
        return arrival_us

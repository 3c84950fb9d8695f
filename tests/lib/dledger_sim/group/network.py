"""The network: when, how often and whether a message arrives."""

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
        """What is sent before waits until then."""
        self.resets = 0
        """Counts connections; what an earlier one carried is lost."""
        self.last_arrival_us = 0
        self.loss_site = f"loss {sender}>{receiver}"
        self.duplicate_site = f"duplicate {sender}>{receiver}"
        self.delay_site = f"delay {sender}>{receiver}"


class SimNetwork:
    """Links between members, each with a direction of its own."""

    def __init__(self, conditions: Conditions, choices: Choices) -> None:
        self.conditions = conditions
        self.fault_count = 0
        """Messages lost, doubled or held up."""
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
        """Let nothing through from one to the other."""
        self.links[sender][receiver].cut = True

    def clog(self, sender: str, receiver: str, until_us: int) -> None:
        """Hold back what is sent from one to the other; then it comes at once."""
        self.links[sender][receiver].clogged_until_us = until_us

    def drop_what_travels(self, sender: str = "") -> None:
        """Lose every message that is on its way, of one member or of all, whenever it would have
        arrived.
        """
        for member_id, links in self.links.items():
            for link in links.values():
                link.resets += sender in ("", member_id)

    def restore(self) -> None:
        """Let everything through again."""
        for links in self.links.values():
            for link in links.values():
                link.cut = False
                link.clogged_until_us = 0

    def arrivals_us(self, now_us: int, link: SimLink) -> tuple[int, ...]:
        """When a message sent now arrives: never, once, or twice."""
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

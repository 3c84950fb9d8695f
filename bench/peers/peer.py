"""`Peer`: what a system has to provide to be measured."""

import abc
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench.peers.client import Client, ClientError
from tools.groups.processes import MemberProcesses
from tools.groups.waiting import wait_for

ORDER_TIMEOUT_S = 90.0
ORDER_POLL_S = 0.3
APPENDS_LOG = "appends"
CLIENT_LOG = "client.log"
"""File with the error output of the client program, in the folder of the group."""


@dataclass(frozen=True, slots=True)
class Description:
    """The facts about a peer that a reader of the figures needs."""

    name: str
    promise: str
    """The faults that an acknowledged append has survived."""
    client: str
    """The client library, and its settings that are not defaults."""


class Peer(abc.ABC):
    """A kind of group with a kind of client.

    The constructor raises PeerMissingError if the peer is not built on this machine.
    """

    description: ClassVar[Description]
    warm_up_s: ClassVar[float] = 6.0
    """Load before the figures count: half before the appends, half before the reads."""
    ways_to_read: ClassVar[tuple[str, ...]] = ("consumer",)
    """Names of the client's ways to read; each is measured."""

    @abc.abstractmethod
    def group_in(self, folder: Path) -> MemberProcesses:
        """Return a group of three members that keeps everything in a folder."""

    @abc.abstractmethod
    def client_of(self, group: MemberProcesses) -> Client:
        """Start a client program for a group."""

    def leader(self, group: MemberProcesses, client: Client) -> str:
        """Wait until all members are in order; return the id of the leader."""

        def named() -> str | None:
            answer = client.ask("leader", log=APPENDS_LOG)
            return answer["leader"] if answer["whole"] else None

        try:
            return wait_for(
                named, "all members in order", timeout_s=ORDER_TIMEOUT_S, poll_s=ORDER_POLL_S
            )
        except AssertionError as error:
            raise ClientError(f"{self.description.name}: {error}") from error


class PeerGroup(MemberProcesses):
    """Three members that are usable once the client can create a log."""

    def _wait_until_usable(self) -> None:
        """Do nothing: `create` waits for the members."""

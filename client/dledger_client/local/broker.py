"""The members of a local group as RocketMQ brokers: their ports and their settings.

All members listen on one port, the group's address. The kernel gives each new connection to one of
them, so a client whose member was killed reaches a running one when it reconnects, and need not
know the leader. Each member also has a port of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from dledger_client.cluster.addresses import PORT_MAX
from dledger_client.local.errors import LocalGroupError
from dledger_formats.peers import format_peers
from dledger_formats.rocketmq import broker_variables as variables
from dledger_formats.rocketmq import topic_names

BROKER_PORT: Final = 9876
"""Where clients of RocketMQ expect a name server; a group of brokers answers as one."""
BROKER_PROGRAM: Final = "dledger-broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBroker:
    """Where clients of RocketMQ reach a local group."""

    port: int
    """The port of the group, which its members share."""
    address: str
    """The host and that port: what a client sets as the address of its name server."""
    addresses: Mapping[str, str]
    """Each member's own address, by member id."""

    @classmethod
    def of(cls, group: str, members: Sequence[str], host: str, port: int) -> Self:
        """Give each member a port after the group's. Raises LocalGroupError."""
        if not topic_names.is_valid(group):
            raise LocalGroupError(
                f"a broker cannot have the name {group!a}; use letters, digits, dashes and "
                "underscores"
            )
        if not 0 < port <= PORT_MAX - len(members):
            raise LocalGroupError(
                f"port {port} is out of range: {len(members)} brokers need {len(members) + 1} "
                "ports from there on"
            )
        own = {member: f"{host}:{port + 1 + number}" for number, member in enumerate(members)}
        return cls(port=port, address=f"{host}:{port}", addresses=own)

    @property
    def ports(self) -> Sequence[int]:
        """All ports: the group's, then those of the members."""
        return range(self.port, self.port + 1 + len(self.addresses))

    def environment(self) -> Mapping[str, str]:
        """Return the broker's settings, which are the same for every member."""
        return {
            variables.ADDRESSES: format_peers(self.addresses),
            variables.GROUP_ADDRESS: self.address,
            variables.SHARES_PORT: "true",
        }

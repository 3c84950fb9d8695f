"""Names of the environment variables that `dledger-broker` reads beside those of a member."""

from collections.abc import Mapping
from typing import Final

from dledger_formats.settings import PREFIX

BROKER_PREFIX: Final = f"{PREFIX}BROKER_"
ADDRESSES: Final = f"{BROKER_PREFIX}ADDRESSES"
"""The addresses at which clients reach each member: `n0-IP:port;n1-IP:port`."""
OWN_ADDRESS: Final = f"{BROKER_PREFIX}OWN_ADDRESS"
"""Where this member listens, `IP:port`, if it does not know the addresses of the others."""
GROUP_ADDRESS: Final = f"{BROKER_PREFIX}GROUP_ADDRESS"
"""Where clients reach any member, `HOST:port`; empty if there is no such address."""
SHARES_PORT: Final = f"{BROKER_PREFIX}SHARES_PORT"
"""`true` if each member listens at the port of the group's address itself; `false` if something in
front of them does.
"""
NAME: Final = f"{BROKER_PREFIX}NAME"
CLUSTER: Final = f"{BROKER_PREFIX}CLUSTER"
AUTO_CREATE_TOPICS: Final = f"{BROKER_PREFIX}AUTO_CREATE_TOPICS"
NAME_SERVERS: Final = f"{BROKER_PREFIX}NAME_SERVERS"
REGISTER_MEMBERS: Final = f"{BROKER_PREFIX}REGISTER_MEMBERS"
"""`false` if only the group's address is registered at name servers."""
ALL: Final = (
    ADDRESSES, OWN_ADDRESS, GROUP_ADDRESS, SHARES_PORT, NAME, CLUSTER, AUTO_CREATE_TOPICS,
    NAME_SERVERS, REGISTER_MEMBERS,
)  # fmt: skip

LIVE_DEFAULTS: Final[Mapping[str, int]] = {
    "connections_per_address_max": 1000,
    "connections_max": 1536,
}
"""The live settings whose default differs in a broker. The operator sets them explicitly.

Behind kube-proxy or NAT, many clients share one address, and each RocketMQ client has a connection
of its own. One address leaves a third of all connections to others.
"""

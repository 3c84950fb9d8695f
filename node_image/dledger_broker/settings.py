"""The broker's own settings, read from the environment beside the member's."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final, Self

from dledger_formats.peers import PeersError, parse_peers
from dledger_formats.rocketmq import topic_names
from dledger_formats.settings import NO_STATE_MACHINE, PREFIX, NodeSettings, SettingsError

BROKER_PREFIX: Final = f"{PREFIX}BROKER_"
_ADDRESSES: Final = f"{BROKER_PREFIX}ADDRESSES"
_NAME: Final = f"{BROKER_PREFIX}NAME"
_CLUSTER: Final = f"{BROKER_PREFIX}CLUSTER"
_AUTO_CREATE: Final = f"{BROKER_PREFIX}AUTO_CREATE_TOPICS"
_NAME_SERVERS: Final = f"{BROKER_PREFIX}NAME_SERVERS"
_KNOWN: Final = (_ADDRESSES, _NAME, _CLUSTER, _AUTO_CREATE, _NAME_SERVERS)
NAME_SERVERS_MAX: Final = 16
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_PORT: Final = re.compile(r"[0-9]{1,5}")
_THRESHOLD: Final = f"{PREFIX}SNAPSHOT_THRESHOLD"
SNAPSHOT_THRESHOLD: Final = 100_000
"""Entries between two snapshots, if no setting says otherwise. A state is larger than a register,
and each message is an entry.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """What a broker is called, and where its clients find its members."""

    node: NodeSettings
    """The settings of the member."""
    addresses: Mapping[str, str]
    """By member: IP and port that clients connect to."""
    name: str
    """The broker's name: one for the whole group."""
    cluster: str = "DefaultCluster"
    auto_create_topics: bool = True
    """Whether a message to an unknown topic creates the topic."""
    name_servers: tuple[str, ...] = ()
    """Host and port of each name server at which the members register themselves."""

    @property
    def own_address(self) -> tuple[str, int]:
        """This member's IP and port."""
        return _divided(self.addresses[self.node.self_id])

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read the settings of the broker and of the member. Raises SettingsError."""
        given = {key: text for key, text in environment.items() if key.startswith(BROKER_PREFIX)}
        unknown = sorted(given.keys() - {*_KNOWN})
        if unknown:
            raise SettingsError(f"unknown setting {unknown[0]}; the settings are {_KNOWN}")
        node = NodeSettings.from_environment(
            {key: text for key, text in environment.items() if key not in given}
        )
        if node.state_machine != NO_STATE_MACHINE:
            raise SettingsError(
                f"{PREFIX}STATE_MACHINE is {node.state_machine!r}; a broker's state is its own, so "
                "leave it out"
            )
        if _THRESHOLD not in environment:
            node = replace(node, snapshot_threshold=SNAPSHOT_THRESHOLD)
        return cls(
            node=node,
            addresses=_addresses(given.get(_ADDRESSES, ""), node),
            name=_name(_NAME, given.get(_NAME, node.group)),
            cluster=_name(_CLUSTER, given.get(_CLUSTER, "DefaultCluster")),
            auto_create_topics=_truth(given.get(_AUTO_CREATE, "true")),
            name_servers=_name_servers(given.get(_NAME_SERVERS, "")),
        )


def _addresses(text: str, node: NodeSettings) -> dict[str, str]:
    try:
        addresses = parse_peers(text)
    except PeersError as error:
        raise SettingsError(f"{_ADDRESSES}: {error}") from None
    missing = [member for member in node.known_peers if member not in addresses]
    if missing:
        raise SettingsError(f"{_ADDRESSES} has no address of {missing[0]}")
    for member, address in addresses.items():
        try:
            _divided(address)
        except ValueError:
            raise SettingsError(
                f"{_ADDRESSES} has {address!r} for {member}; IP:port is needed, because messages "
                "carry it"
            ) from None
    return addresses


def _divided(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return str(ip_address(host.strip("[]"))), int(port)


def _name_servers(text: str) -> tuple[str, ...]:
    servers = tuple(dict.fromkeys(filter(None, text.split(";"))))
    for server in servers:
        host, _, port = server.rpartition(":")
        if not (_HOST.fullmatch(host) and _PORT.fullmatch(port) and 0 < int(port) < 65536):
            raise SettingsError(f"{_NAME_SERVERS} has {server!r}; the form is HOST:PORT;HOST:PORT")
    if len(servers) > NAME_SERVERS_MAX:
        raise SettingsError(
            f"{_NAME_SERVERS} has {len(servers)} name servers; {NAME_SERVERS_MAX} are allowed"
        )
    return servers


def _name(key: str, text: str) -> str:
    if not topic_names.is_valid(text):
        raise SettingsError(f"{key} is {text!r}; use up to 127 of the letters a-z A-Z 0-9 _ - % |")
    return text


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise SettingsError(f"{_AUTO_CREATE} is {text!r}; it must be true or false")
    return text == "true"

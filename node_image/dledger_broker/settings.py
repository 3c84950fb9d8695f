"""The broker's own settings, read from the environment alongside the member's."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any, Final, Self

from dledger_formats.peers import PeersError, parse_peers
from dledger_formats.rocketmq import broker_variables as variables
from dledger_formats.rocketmq import topic_names
from dledger_formats.settings import (
    NO_STATE_MACHINE,
    PREFIX,
    NodeSettings,
    SettingsError,
    variable_name,
)
from dledger_node.config import join_address

NAME_SERVERS_MAX: Final = 16
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_PORT: Final = re.compile(r"[0-9]{1,5}")
SNAPSHOT_THRESHOLD: Final = 100_000
"""Entries between two snapshots, if no setting says otherwise. A state is larger than a register,
and each message is an entry.
"""
_NODE_DEFAULTS: Final = {
    "snapshot_threshold": SNAPSHOT_THRESHOLD,
    **variables.LIVE_DEFAULTS,
}
"""The settings of the member that have another default in a broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """What a broker is called, and where its clients find its members."""

    node: NodeSettings
    """The settings of the member."""
    addresses: Mapping[str, str]
    """By member: IP and port that clients connect to. Only this member's, if the setting
    OWN_ADDRESS gives it.
    """
    group_address: str = ""
    """Host and port at which clients reach any member, whichever leads; empty if there is none. A
    name is looked up regularly.
    """
    shares_port: bool = False
    """Whether this member listens at the port of the group's address, together with the others."""
    name: str
    """The broker's name: one for the whole group."""
    cluster: str = "DefaultCluster"
    auto_create_topics: bool = True
    """Whether a message to an unknown topic creates the topic."""
    name_servers: tuple[str, ...] = ()
    """Host and port of each name server at which the members register themselves."""
    register_members: bool = True
    """Whether each member registers its own address, too, beside that of the group."""

    @property
    def own_address(self) -> tuple[str, int]:
        """This member's IP and port."""
        return _divided(self.addresses[self.node.self_id])

    @property
    def shared_port(self) -> int | None:
        """The port at which this member listens together with the others; None if there is none."""
        return int(self.group_address.rpartition(":")[2]) if self.shares_port else None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read the settings of the broker and of the member. Raises SettingsError."""
        prefix = variables.BROKER_PREFIX
        given = {key: text for key, text in environment.items() if key.startswith(prefix)}
        unknown = sorted(given.keys() - {*variables.ALL})
        if unknown:
            raise SettingsError(f"unknown setting {unknown[0]}; the settings are {variables.ALL}")
        node = NodeSettings.from_environment(
            {key: text for key, text in environment.items() if key not in given}
        )
        if node.state_machine != NO_STATE_MACHINE:
            raise SettingsError(
                f"{PREFIX}STATE_MACHINE is {node.state_machine!r}; a broker's state is its own, so "
                "leave it out"
            )
        defaults: dict[str, Any] = {
            name: value
            for name, value in _NODE_DEFAULTS.items()
            if variable_name(name) not in environment
        }
        node = replace(node, **defaults)
        addresses = _addresses(given, node)
        group_address = _group_address(given.get(variables.GROUP_ADDRESS, ""))
        return cls(
            node=node,
            addresses=addresses,
            group_address=group_address,
            shares_port=_shares_port(given, group_address, addresses),
            name=_name(variables.NAME, given.get(variables.NAME, node.group)),
            cluster=_name(variables.CLUSTER, given.get(variables.CLUSTER, "DefaultCluster")),
            auto_create_topics=_truth(variables.AUTO_CREATE_TOPICS, given, default="true"),
            name_servers=_name_servers(given.get(variables.NAME_SERVERS, "")),
            register_members=_register_members(given, group_address),
        )


def _addresses(given: Mapping[str, str], node: NodeSettings) -> dict[str, str]:
    if own := given.get(variables.OWN_ADDRESS):
        return {node.self_id: _own_address(own, given)}
    try:
        addresses = parse_peers(given.get(variables.ADDRESSES, ""))
    except PeersError as error:
        raise SettingsError(f"{variables.ADDRESSES}: {error}") from None
    missing = [member for member in node.known_peers if member not in addresses]
    if missing:
        raise SettingsError(f"{variables.ADDRESSES} has no address of {missing[0]}")
    for member, address in addresses.items():
        try:
            _divided(address)
        except ValueError:
            raise SettingsError(
                f"{variables.ADDRESSES} has {address!r} for {member}; IP:port is needed, because "
                "messages carry it"
            ) from None
    return addresses


def _own_address(text: str, given: Mapping[str, str]) -> str:
    """Return this member's address.

    Brackets may be around an IP of either kind, since whatever writes the setting may not know
    which kind it will be.
    """
    if given.get(variables.ADDRESSES):
        raise SettingsError(
            f"{variables.OWN_ADDRESS} and {variables.ADDRESSES} are both set; set one of them"
        )
    if not given.get(variables.GROUP_ADDRESS):
        raise SettingsError(
            f"{variables.OWN_ADDRESS} is set without {variables.GROUP_ADDRESS}: clients would not "
            "find the other members; set both, or set the addresses of all members"
        )
    try:
        return join_address(*_divided(text))
    except ValueError:
        raise SettingsError(f"{variables.OWN_ADDRESS} is {text!r}; IP:port is needed") from None


def _group_address(text: str) -> str:
    if text and not _is_host_and_port(text):
        raise SettingsError(f"{variables.GROUP_ADDRESS} is {text!r}; the form is HOST:PORT")
    return text


def _shares_port(
    given: Mapping[str, str], group_address: str, addresses: Mapping[str, str]
) -> bool:
    if not _truth(variables.SHARES_PORT, given, default="false"):
        return False
    if not group_address:
        raise SettingsError(
            f"{variables.SHARES_PORT} is true, but {variables.GROUP_ADDRESS} is empty; set the "
            "address that the members share"
        )
    for member, address in addresses.items():
        if address == group_address:
            raise SettingsError(
                f"{variables.GROUP_ADDRESS} is {group_address}, which is the address of {member}; "
                "members that share a port need another one each"
            )
    return True


def _register_members(given: Mapping[str, str], group_address: str) -> bool:
    is_wanted = _truth(variables.REGISTER_MEMBERS, given, default="true")
    if not is_wanted and not group_address:
        raise SettingsError(
            f"{variables.REGISTER_MEMBERS} is false, but {variables.GROUP_ADDRESS} is empty; "
            "nothing would be registered"
        )
    return is_wanted


def _divided(address: str) -> tuple[str, int]:
    """Return the IP and the port of an address. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
        raise ValueError(f"{port!r} is no port")
    return str(ip_address(host.strip("[]"))), int(port)


def _is_host_and_port(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(_HOST.fullmatch(host) and _PORT.fullmatch(port) and 0 < int(port) < 65536)


def _name_servers(text: str) -> tuple[str, ...]:
    servers = tuple(dict.fromkeys(filter(None, text.split(";"))))
    for server in servers:
        if not _is_host_and_port(server):
            raise SettingsError(
                f"{variables.NAME_SERVERS} has {server!r}; the form is HOST:PORT;HOST:PORT"
            )
    if len(servers) > NAME_SERVERS_MAX:
        raise SettingsError(
            f"{variables.NAME_SERVERS} has {len(servers)} name servers; {NAME_SERVERS_MAX} are "
            "allowed"
        )
    return servers


def _name(key: str, text: str) -> str:
    if not topic_names.is_valid(text):
        raise SettingsError(f"{key} is {text!r}; use up to 127 of the letters a-z A-Z 0-9 _ - % |")
    return text


def _truth(key: str, given: Mapping[str, str], *, default: str) -> bool:
    text = given.get(key, default)
    if text not in ("true", "false"):
        raise SettingsError(f"{key} is {text!r}; it must be true or false")
    return text == "true"

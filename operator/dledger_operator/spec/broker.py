"""The members as a RocketMQ broker: `spec.broker`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dledger_formats.rocketmq import broker_variables as variables
from dledger_operator import names
from dledger_operator.spec.client_service import ClientService, read_client_service
from dledger_operator.spec.spec_reader import InvalidSpecError, SpecReader

DEFAULT_CLUSTER: Final = "DefaultCluster"
NAME_SERVERS_MAX: Final = 16
_NAME: Final = re.compile(r"[A-Za-z0-9_%-]{1,127}")
_HOST_AND_PORT: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSpec:
    """How the members are a broker, and how clients reach them."""

    name: str
    """The broker's name in routes."""
    cluster: str
    auto_create_topics: bool
    name_servers: tuple[str, ...]
    """Host and port of each name server at which the members register themselves."""
    register_members: bool
    """Whether each member registers its own address there, too."""
    advertise: str
    """Host and port that members announce to clients; empty for those of the group's Service."""
    service: ClientService

    def environment(self, namespace: str, group: str) -> dict[str, str]:
        """Return the environment variables that the broker of every member reads."""
        address = self.advertise or names.broker_address(namespace, group, names.BROKER_PORT)
        servers = {variables.NAME_SERVERS: ";".join(self.name_servers)}
        return {
            variables.GROUP_ADDRESS: address,
            variables.NAME: self.name,
            variables.CLUSTER: self.cluster,
            variables.AUTO_CREATE_TOPICS: "true" if self.auto_create_topics else "false",
            **(servers if self.name_servers else {}),
            **({} if self.register_members else {variables.REGISTER_MEMBERS: "false"}),
        }


def read_broker(spec: SpecReader, group: str) -> BrokerSpec | None:
    """Read `broker`; None if the spec has none. Raises InvalidSpecError."""
    if spec.values.get("broker") is None:
        return None
    section = spec.section("broker")
    servers = section.strings("nameServers")
    if len(servers) > NAME_SERVERS_MAX:
        raise InvalidSpecError(
            f"{section.path}.nameServers has {len(servers)} name servers; {NAME_SERVERS_MAX} are "
            "allowed"
        )
    for server in servers:
        _check_address(f"{section.path}.nameServers", server)
    if advertise := section.text("advertise"):
        _check_address(f"{section.path}.advertise", advertise)
    _check_conflicts(spec)
    return BrokerSpec(
        name=_name(section, "brokerName", group),
        cluster=_name(section, "clusterName", DEFAULT_CLUSTER),
        auto_create_topics=section.flag("autoCreateTopics", default=True),
        name_servers=servers,
        register_members=section.flag("registerMembers", default=True),
        advertise=advertise,
        service=read_client_service(section.section("service")),
    )


def _check_conflicts(spec: SpecReader) -> None:
    """Refuse what conflicts with a broker. The schema does too, except for sidecars."""
    if spec.section("stateMachine").text("type", "None") != "None":
        raise InvalidSpecError(
            "spec.stateMachine.type must be None in a group with spec.broker, whose state is the "
            "broker's own"
        )
    for sidecar in spec.section("sidecars").objects("containers"):
        for port in SpecReader(sidecar, "spec.sidecars.containers").objects("ports"):
            if port.get("containerPort") == names.BROKER_PORT or port.get("name") == "broker":
                raise InvalidSpecError(
                    f"spec.sidecars.containers: the port {names.BROKER_PORT} and the name broker "
                    "are those of the member's broker; choose others"
                )


def _name(section: SpecReader, key: str, default: str) -> str:
    name = section.text(key) or default
    if not _NAME.fullmatch(name):
        raise InvalidSpecError(
            f"{section.path}.{key} is {name!r}; use up to 127 letters, digits, _, - and %"
        )
    return name


def _check_address(path: str, text: str) -> None:
    found = _HOST_AND_PORT.fullmatch(text)
    if found is None or not 0 < int(found[1]) < 65536:
        raise InvalidSpecError(f"{path} has {text!r}; the form is HOST:PORT")


def changes_pods(broker: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the raw section that pods are built from."""
    return {key: value for key, value in broker.items() if key != "service"}

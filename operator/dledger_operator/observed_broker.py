"""What the members of a group say of their RocketMQ broker. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from dledger_formats.http.broker_status import BrokerStatus
from dledger_operator.observed_state import ObservedGroup, ObservedMember


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedNameServer:
    """Which members are registered at one of RocketMQ's name servers, as they say themselves."""

    address: str
    registered: Sequence[str]
    """Ids of members that are."""
    missing: Sequence[str]
    """Ids of members that serve clients and are not."""
    problem: str
    """Why the first of these is not; empty if none has said."""


def serving(observed: ObservedGroup) -> list[tuple[ObservedMember, BrokerStatus]]:
    """Return the members that take clients of the broker, to which its Service leads."""
    return [
        (member, member.status.broker)
        for member in observed.members
        if member.ready and member.status and member.status.broker and member.status.broker.serving
    ]


def name_servers(observed: ObservedGroup) -> list[ObservedNameServer]:
    """Return the name servers of the spec, with the members that are registered there."""
    wanted = observed.broker.name_servers if observed.broker else ()
    return [_name_server(address, serving(observed)) for address in wanted]


def _name_server(
    address: str, members: Sequence[tuple[ObservedMember, BrokerStatus]]
) -> ObservedNameServer:
    registered, missing, problems = [], [], []
    for member, broker in members:
        told = next((each for each in broker.name_servers if each.address == address), None)
        if told is not None and told.registered:
            registered.append(member.member_id)
            continue
        missing.append(member.member_id)
        if told is not None and told.problem:
            problems.append(told.problem)
    return ObservedNameServer(
        address=address,
        registered=registered,
        missing=missing,
        problem=problems[0] if problems else "",
    )

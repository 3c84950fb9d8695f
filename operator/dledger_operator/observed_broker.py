"""What the members of a group report about their RocketMQ broker. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from dledger_formats.http.broker_status import BrokerStatus
from dledger_operator.observed_state import ObservedGroup, ObservedMember


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedNameServer:
    """Which members are registered at one of RocketMQ's name servers, as they report."""

    address: str
    registered: Sequence[str]
    """Ids of the members that are registered."""
    missing: Sequence[str]
    """Ids of the members that serve clients but are not registered."""
    problem: str
    """The first reason that a missing member reports; empty if none reports one."""


def serving(observed: ObservedGroup) -> list[tuple[ObservedMember, BrokerStatus]]:
    """Return the ready members that accept clients of the broker; its Service leads to them."""
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
        reported = next((each for each in broker.name_servers if each.address == address), None)
        if reported is not None and reported.registered:
            registered.append(member.member_id)
            continue
        missing.append(member.member_id)
        if reported is not None and reported.problem:
            problems.append(reported.problem)
    return ObservedNameServer(
        address=address,
        registered=registered,
        missing=missing,
        problem=problems[0] if problems else "",
    )

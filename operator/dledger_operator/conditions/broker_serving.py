"""BrokerServing: the members that are a RocketMQ broker take clients."""

from dledger_operator import names, reasons
from dledger_operator.conditions.condition import Judgment
from dledger_operator.observed_broker import name_servers, serving
from dledger_operator.observed_state import ObservedGroup, ObservedMember

TYPE = "BrokerServing"


def judge(observed: ObservedGroup) -> Judgment:
    """Report whether clients of the broker are served, as the members report. Connected clients are
    served even while a name server does not answer, so the message only names it.
    """
    if observed.hibernates:
        message = "the group hibernates, so no member runs"
        return Judgment(holds=False, reason=reasons.HIBERNATED, message=message)
    takers = [member for member, _ in serving(observed)]
    refusals = [
        f"{member.pod}: {_why_not(member)}" for member in observed.members if member not in takers
    ]
    if not takers:
        message = f"no member takes clients: {'; '.join(refusals) or 'there is none'}"
        return Judgment(holds=False, reason="NoMemberServes", message=message)
    if observed.leader is None:
        message = (
            "no member leads: clients get the messages that are stored, and nothing is accepted "
            "until there is a leader; LeaderElected says what is in the way"
        )
        return Judgment(holds=False, reason=reasons.NO_LEADER, message=message)
    service = names.broker_address(observed.namespace, observed.name, names.NAMES_PORT)
    message = "; ".join(
        [f"{len(takers)} of {len(observed.members)} members take clients at {service}", *refusals]
    )
    if missing := _not_registered(observed):
        message += (
            f"; not registered: {missing}; members keep trying, and clients of such a name server "
            "may not find them until then"
        )
        return Judgment(holds=True, reason="NotRegistered", message=message)
    return Judgment(holds=True, reason="Serving", message=message)


def _why_not(member: ObservedMember) -> str:
    """Return why a member takes no clients."""
    if member.reason or member.status is None:
        return member.reason or "no answer"
    if member.status.broker is None:
        return "its program is no broker, perhaps because its image is of an earlier release"
    return member.status.broker.reason


def _not_registered(observed: ObservedGroup) -> str:
    """Name the members that are not registered, by name server."""
    return "; ".join(
        f"{', '.join(each.missing)} at {each.address}"
        + (f" ({each.problem})" if each.problem else "")
        for each in name_servers(observed)
        if each.missing
    )

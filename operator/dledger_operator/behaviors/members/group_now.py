"""Reads the present state of a group: its spec, its members' pods, and its members' answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dledger_formats.http.status import NodeStatus, is_stranger
from dledger_operator import names
from dledger_operator.api_objects import PodView, StatefulSetView
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.founding.identity import IDENTITY_KEY
from dledger_operator.behaviors.leader.member_pods import is_member
from dledger_operator.behaviors.members import observe
from dledger_operator.clients.errors import NotFoundError
from dledger_operator.spec.accepted import AcceptedSpec, read_group
from dledger_operator.spec.group import Group
from dledger_operator.spec.images import ImageDefaults
from dledger_operator.spec.spec_reader import InvalidSpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNow:
    """A group and its members, read and asked right now."""

    group: Group
    body: Mapping[str, Any] = field(repr=False)
    invalid: str
    """Why the spec is invalid; empty if it is not. `group` is then what stays in force."""
    stateful_set: StatefulSetView | None
    """None if it does not exist."""
    pods: Sequence[PodView]
    answers: Mapping[str, NodeStatus]
    """The members' own statuses by pod uid."""

    @property
    def identity(self) -> str:
        """The group's identity; empty while it is not known."""
        return identity_of(self.body)

    def ip_of(self, member_id: str) -> str:
        """Return the address of a member's pod; empty if it has none."""
        return next((pod.ip for pod in self.pods if pod.member_id == member_id), "")


def identity_of(body: Mapping[str, Any]) -> str:
    """Return the identity in a group's status; empty if there is none."""
    return str((body.get("status") or {}).get(IDENTITY_KEY, ""))


async def look(context: Context, namespace: str, name: str) -> GroupNow | None:
    """Read a group and ask its members; None if the group does not exist.

    If the spec is invalid, what was accepted last stays in force. Raises InvalidSpecError
    if not even its leader can be followed.
    """
    api = context.api
    try:
        body = await api.group(namespace, name)
    except NotFoundError:
        return None
    group = read_group(body, context.node_image, AcceptedSpec.recorded(body.get("status") or {}))
    invalid = _why_invalid(body, context.node_image) if group is None or group.is_partial else ""
    if group is None:
        raise InvalidSpecError(invalid)
    stateful_set = await api.stateful_set(namespace, names.stateful_set(name))
    listed = await api.member_pods(namespace, name) if stateful_set else ()
    uids = {stateful_set.uid} if stateful_set else set()
    pods = [pod for pod in listed if is_member(pod, name, uids)]

    def strange(answer: NodeStatus) -> bool:
        return is_stranger(answer, name, identity_of(body))

    answers = await observe.statuses(context.member_http, pods, strange)
    return GroupNow(
        group=group,
        body=body,
        invalid=invalid,
        stateful_set=stateful_set,
        pods=pods,
        answers=answers,
    )


def _why_invalid(body: Mapping[str, Any], images: ImageDefaults) -> str:
    try:
        Group.from_body(body, images)
    except InvalidSpecError as error:
        return str(error)
    return ""

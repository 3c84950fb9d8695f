"""The administration token of a group, given to its members by real kubelets."""

import base64

import pytest

from dledger_e2e.group import Group
from dledger_e2e.waiting import wait_for
from tools.deployment import CLIENT_POD, CommandError

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(1, among="closed doors on the cluster"),
]
SECRET = "admin-tokens.dledger.io"
READ_S = 150.0
"""How long kubelets may take until all members have read what was written."""


def tokens(group: Group) -> list[str]:
    """Return the group's tokens, the one to send first."""
    text = base64.b64decode(group.get("secret", SECRET)["data"][group.name]).decode()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def demote_and_promote(group: Group, token: str) -> None:
    """Change the membership from the client pod, with a token in its environment."""
    for verb in ("demote", "promote"):
        leader = group.leader_pod()
        follower = next(name for name in sorted(group.pods()) if name != leader)
        member = f"n{follower.rpartition('-')[2]}"
        group.kubectl(
            "exec", CLIENT_POD, "--", "env", f"DLEDGER_CLIENT_ADMIN_TOKEN={token}",
            "dledger", "member", verb, member, "--deadline=30",
            f"--servers={group.name}-nodes:40911", f"--group={group.name}",
        )  # fmt: skip


def test_a_token_is_replaced_without_a_restart(group: Group) -> None:
    pods = group.uids()
    (old,) = tokens(group)
    change = '{"spec": {"adminToken": {"rotatedAt": "2026-01-01T00:00:00Z"}}}'

    group.kubectl("patch", "dlg", group.name, "--type=merge", f"--patch={change}")
    wait_for(
        lambda: tokens(group)[0] != old, "the new token is sent, as all members accept it", READ_S
    )

    new, former = tokens(group)
    assert former == old
    for token in (new, old):
        demote_and_promote(group, token)
    with pytest.raises(CommandError, match="not one of this group's"):
        demote_and_promote(group, "x" * 40)
    assert group.uids() == pods
    assert group.restarts() == 0

"""A member whose machine does not come back gets a new volume, under load."""

from typing import Any

import pytest

from dledger_e2e.group import Group, member_of
from dledger_e2e.load import Load, assert_nothing_was_lost
from dledger_e2e.one_off import carry_out, strand
from dledger_e2e.waiting import wait_for

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(1, among="volumes on the cluster"),
]


def replace(group: Group, name: str, pod: str) -> dict[str, Any]:
    return carry_out(group, "DLedgerReplace", name, member=member_of(pod))


def test_a_member_whose_machine_is_gone_gets_a_new_volume_and_leads_with_everything(
    group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    leader = group.leader_pod()
    lost, other = sorted(set(group.pods()) - {leader})
    before = {pod: group.claim_uid_of(pod) for pod in group.pods()}
    with Load(group, per_second=500) as load:
        load.wait_for_more(500)
        healthy = replace(group, "healthy", other)
        strand(group, lost)
        load.wait_for_more(200)
        replaced = replace(group, "lost", lost)
        group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")
        load.wait_for_more(200)

    after = {pod: group.claim_uid_of(pod) for pod in group.pods()}
    assert healthy["conditions"][0]["reason"] == "MemberServes"
    assert replaced["conditions"][0]["reason"] == "Replaced"
    assert {pod for pod, uid in before.items() if after[pod] != uid} == {lost}
    assert replaced["claimUid"] == before[lost]
    assert load.refused == load.unknown == 0
    told = [each for each in group.get("events")["items"] if each["reason"] == "MemberReadmitted"]
    assert [each["message"].split()[0] for each in told] == [member_of(lost)]
    phases = {each: replaced[f"{each}Seconds"] for each in ("check", "volume", "join")}
    with capsys.disabled():
        print(f"\na replaced volume: {phases} s, {len(load.acknowledged)} entries")

    moved = carry_out(group, "DLedgerSwitchover", "to-it", target=member_of(lost))
    assert moved["phase"] == "Succeeded"
    wait_for(lambda: group.leader_pod() == lost, "the member with the new volume leads")
    assert_nothing_was_lost(group, load)

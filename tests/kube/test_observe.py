"""Asking the members of a group for their status."""

from dledger_kube.fake_members import members
from dledger_kube.objects import pod
from dledger_operator.behaviors.members import observe


async def test_a_silent_member_does_not_hide_the_answers_of_the_others() -> None:
    async with members(3) as (nodes, client):
        await nodes[1].fall_silent()
        pods = [pod(ordinal, ip=node.ip) for ordinal, node in enumerate(nodes)]

        answers = await observe.statuses(client, [*pods, pod(3, ip="")])

        assert sorted(answers) == ["uid-0", "uid-2"]
        assert answers["uid-2"].self_id == "n2"


async def test_an_answer_of_another_member_counts_as_silence() -> None:
    """The address of a pod that has ended may be another's."""
    async with members(3) as (nodes, client):
        gone, living = pod(0, ip=nodes[2].ip), pod(2, ip=nodes[2].ip)

        assert sorted(await observe.statuses(client, [gone, living])) == ["uid-2"]

"""What `dledger health --all-members` says about members, without a group."""

import argparse

import pytest

from dledger_client.cluster.addresses import ServerAddress
from dledger_client.commands import health, status
from dledger_client.errors import GroupUnreachableError

ARGUMENTS = argparse.Namespace(group="g", max_lag=None)


async def problems(voters: set[str]) -> list[str]:
    return await health._members_problems(ARGUMENTS, health.Health(leader_id="n0"), voters)


async def test_a_learner_may_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def addresses(_: argparse.Namespace) -> list[ServerAddress]:
        return [
            ServerAddress(host="127.0.0.1", port=1, member_id=member_id)
            for member_id in ("n0", "n1")
        ]

    monkeypatch.setattr(status, "page_addresses", addresses)

    (problem,) = await problems({"n0"})

    assert problem.startswith("n0: its page at 127.0.0.1:1: ")


async def test_a_group_that_cannot_be_asked_for_its_members_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`dledger wait` must ask again instead of giving up."""

    async def addresses(_: argparse.Namespace) -> list[ServerAddress]:
        raise GroupUnreachableError("no member answers")

    monkeypatch.setattr(status, "page_addresses", addresses)

    assert await problems({"n0"}) == ["no member answers"]

"""What `dledger health --all-members` says about members, without a group."""

import argparse

from dledger_client.admin import GroupMembership
from dledger_client.commands import health


async def problems(http: str | None, addresses: dict[str, str], *voters: str) -> list[str]:
    arguments = argparse.Namespace(group="g", max_lag=None, http=http, http_port=1)
    group = GroupMembership(
        group="g", leader_id="n0", term=1, voters=voters, learners=("n1",), index=-1,
        addresses=addresses,
    )  # fmt: skip
    return await health._members_problems(arguments, health.Health(leader_id="n0"), group)


async def test_a_learner_may_be_silent() -> None:
    (problem,) = await problems(None, {"n0": "127.0.0.1:9", "n1": "localhost:9"}, "n0")

    assert problem == "the page of n0 at 127.0.0.1:1: Connection refused"


async def test_members_that_would_share_a_page_need_http() -> None:
    (problem,) = await problems(None, {"n0": "127.0.0.1:7", "n2": "127.0.0.1:9"}, "n0", "n2")

    assert "n0, n2 would all have their pages at 127.0.0.1:1; name the page of each" in problem


async def test_a_page_without_an_answer_may_be_that_of_any_member_which_is_missing() -> None:
    found = await problems("127.0.0.1:1", {}, "n0", "n2")

    assert found == [
        "the page at 127.0.0.1:1: Connection refused",
        "no page has answered for n0, n2",
    ]


async def test_a_voter_whose_page_nobody_names_is_a_problem() -> None:
    found = await problems("n0=127.0.0.1:1", {}, "n0", "n2")

    assert found[1] == "no page has answered for n2; give its address in --http"

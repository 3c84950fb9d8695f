"""The operator as a process, and the Secret with the administration tokens of its groups."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from api_server.client import ApiServer, RefusedError
from dledger_formats.admin_tokens import AdminTokens
from dledger_kube.cluster import API, Object
from dledger_kube.operated import operated
from dledger_kube.operator_account import RELEASE
from dledger_kube.played import Cluster
from dledger_operator import names

pytest_plugins = ["api_server.fixtures"]


@dataclass(slots=True)
class Guarded(Cluster):
    """A namespace with an operator and three fake members."""

    def secret(self) -> Object:
        """Return the Secret; empty while it does not exist."""
        found = self.namespace.get("secrets")["items"]
        return next((each for each in found if each["metadata"]["name"] == names.TOKENS_NAME), {})

    def tokens(self, group: str = "flights") -> AdminTokens | None:
        encoded = self.secret().get("data", {}).get(group)
        return AdminTokens.parse(base64.b64decode(encoded)) if encoded else None

    def accepted(self) -> tuple[str, ...]:
        found = self.tokens()
        return found.accepted if found else ()

    async def until_tokens(self, count: int) -> tuple[str, ...]:
        await self.until(f"{count} tokens", lambda: len(self.accepted()) == count)
        return await asyncio.to_thread(self.accepted)

    async def accept(self, version: str) -> None:
        """Let every member say that it accepts the tokens of a version."""
        for node in self.nodes:
            node.status = replace(
                node.status, demands_admin_token=True, admin_tokens_version=version
            )

    async def until_all_are_asked_again(self) -> None:
        before = [node.asked for node in self.nodes]
        await self.until(
            "the operator has asked all members again",
            lambda: all(
                node.asked > seen + 1 for node, seen in zip(self.nodes, before, strict=True)
            ),
        )

    async def rotate(self, value: str) -> None:
        change = {"spec": {"adminToken": {"rotatedAt": value}}}
        await asyncio.to_thread(self.namespace.patch, "dledgergroups", "flights", change, API)


@pytest.fixture
async def cluster(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Guarded]:
    async with operated(api_server, tmp_path, members=3) as parts:
        yield Guarded(*parts)


async def test_a_group_gets_a_token_that_its_members_mount_and_nothing_shows(
    cluster: Guarded,
) -> None:
    body = await cluster.create_group()
    (token,) = await cluster.until_tokens(1)

    (owner,) = cluster.secret()["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == (names.GROUP_KIND, body["metadata"]["uid"])
    (pod, *_) = cluster.namespace.get("pods")["items"]
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == names.TOKENS_VOLUME]
    assert volume["secret"]["secretName"] == names.TOKENS_NAME
    assert volume["secret"]["items"] == [{"key": "flights", "path": "tokens"}]
    environment = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
    assert environment["DLEDGER_ADMIN_TOKEN_FILE"] == "/etc/dledger-admin-token/tokens"
    await cluster.elect(1, 7)
    await cluster.until("the status is written", lambda: bool(cluster.status()))
    everything = json.dumps(cluster.namespace.get("dledgergroups", group=API)["items"])
    events = json.dumps(cluster.namespace.get("events")["items"])
    assert token not in everything + events + cluster.operator.log() + cluster.operator.metrics()


async def test_an_audit_token_lies_beside_each_token_and_comes_back(cluster: Guarded) -> None:
    """An earlier release of the operator does not write it, and drops it."""
    await cluster.create_group()
    await cluster.until_tokens(1)
    tokens = cluster.tokens()
    assert tokens is not None
    assert cluster.tokens("flights_audit") == tokens.for_audits()

    path = cluster.namespace.path("secrets", names.TOKENS_NAME)
    change = {"data": {"flights_audit": None}}
    await asyncio.to_thread(
        cluster.namespace.server.request, "PATCH", path, change,
        content_type="application/merge-patch+json",
    )  # fmt: skip
    assert cluster.tokens("flights_audit") is None
    cluster.operator.kill()
    cluster.operator.start()

    await cluster.until(
        "it is back", lambda: cluster.tokens("flights_audit") == tokens.for_audits()
    )
    assert cluster.tokens() == tokens


async def test_a_token_that_somebody_removes_comes_back_with_its_audit_token(
    cluster: Guarded,
) -> None:
    await cluster.create_group()
    (old,) = await cluster.until_tokens(1)

    path = cluster.namespace.path("secrets", names.TOKENS_NAME)
    await asyncio.to_thread(
        cluster.namespace.server.request, "PATCH", path, {"data": {"flights": None}},
        content_type="application/merge-patch+json",
    )  # fmt: skip
    cluster.operator.kill()
    cluster.operator.start()

    (new,) = await cluster.until_tokens(1)
    assert new != old
    found = cluster.tokens()
    assert found is not None
    assert cluster.tokens("flights_audit") == found.for_audits()


async def test_a_token_is_replaced_once_all_members_accept_the_new_one(cluster: Guarded) -> None:
    await cluster.create_group()
    (old,) = await cluster.until_tokens(1)
    await cluster.accept("1")

    await cluster.rotate("2026-02-01T00:00:00Z")
    first, new = await cluster.until_tokens(2)
    assert first == old != new
    await cluster.until_all_are_asked_again()
    assert cluster.accepted() == (old, new), "no member accepts the new token yet"

    await cluster.accept("2")

    await cluster.until("the new token is sent", lambda: cluster.accepted() == (new, old))
    both = AdminTokens(accepted=(new, old)).for_audits()
    found = cluster.tokens("flights_audit")
    assert found is not None
    assert found.accepted == both.accepted


async def test_a_new_operator_sends_no_token_that_the_members_do_not_accept_yet(
    cluster: Guarded,
) -> None:
    await cluster.create_group()
    await cluster.until_tokens(1)
    await cluster.accept("1")
    await cluster.rotate("2026-02-01T00:00:00Z")
    old, new = await cluster.until_tokens(2)

    cluster.operator.kill()
    cluster.operator.start()
    await cluster.until_all_are_asked_again()

    assert cluster.accepted() == (old, new)


async def test_the_operator_reads_no_other_secret(cluster: Guarded) -> None:
    await cluster.create_group()
    await cluster.until_tokens(1)
    other = {"metadata": {"name": "of-somebody"}, "stringData": {"password": "of somebody"}}
    cluster.namespace.server.request("POST", cluster.namespace.path("secrets"), other)
    token = cluster.namespace.token(f"the-{RELEASE}")
    account = replace(cluster.namespace.server, token=token)

    for verb, name in (("GET", "of-somebody"), ("GET", ""), ("PATCH", "of-somebody")):
        with pytest.raises(RefusedError, match="forbidden"):
            account.request(verb, cluster.namespace.path("secrets", name), {})
    assert account.request("GET", cluster.namespace.path("secrets", names.TOKENS_NAME))


async def test_a_deleted_secret_is_made_again_with_another_token(cluster: Guarded) -> None:
    await cluster.create_group()
    (old,) = await cluster.until_tokens(1)

    await asyncio.to_thread(
        cluster.namespace.server.request,
        "DELETE",
        cluster.namespace.path("secrets", names.TOKENS_NAME),
    )
    await cluster.rotate("2026-02-01T00:00:00Z")  # wakes the operator, which looks seldom

    assert await cluster.until_tokens(1) != (old,)


async def test_somebody_elses_secret_of_that_name_is_left_alone_and_named(
    cluster: Guarded,
) -> None:
    other = {"metadata": {"name": names.TOKENS_NAME}, "stringData": {"flights": "of somebody"}}
    made = cluster.namespace.server.request("POST", cluster.namespace.path("secrets"), other)

    await cluster.create_group()
    await cluster.elect(1, 7)

    await cluster.until(
        "the group says it",
        lambda: cluster.condition("Degraded")["reason"] == "AdminTokenNameTaken",
    )
    assert cluster.secret()["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_groups_share_the_secret_and_a_deleted_one_leaves_it(cluster: Guarded) -> None:
    await cluster.create_group()
    (token,) = await cluster.until_tokens(1)
    second = {"apiVersion": "dledger.io/v1alpha1", "kind": "DLedgerGroup",
              "metadata": {"name": "trains"}, "spec": {"storage": {"size": "30Gi"}}}  # fmt: skip
    groups = cluster.namespace.path("dledgergroups", group=API)
    await asyncio.to_thread(cluster.namespace.server.request, "POST", groups, second)
    await cluster.until("trains has a token", lambda: cluster.tokens("trains") is not None)
    assert cluster.accepted() == (token,)

    await asyncio.to_thread(cluster.namespace.server.request, "DELETE", f"{groups}/trains")
    await cluster.accept("1")
    await cluster.rotate("2026-02-01T00:00:00Z")

    await cluster.until("trains has none", lambda: cluster.tokens("trains") is None)
    assert cluster.secret()["data"].keys() == {"flights", "flights_audit"}
    assert token in cluster.accepted()


async def test_a_group_that_demands_no_token_mounts_none(cluster: Guarded) -> None:
    body = cluster.namespace.make_group(adminToken={"required": False})
    await cluster.until("the StatefulSet exists", lambda: cluster.has("statefulsets", "flights"))

    template = json.dumps(cluster.namespace.get("statefulsets", group="/apis/apps/v1")["items"])
    assert names.TOKENS_NAME not in template
    assert "DLEDGER_ADMIN_TOKEN_FILE" not in template
    assert body["spec"]["adminToken"]["required"] is False
    assert cluster.secret() == {}

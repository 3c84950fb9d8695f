"""What is to be told of a calm group is told at once, not with its next report."""

from types import SimpleNamespace
from typing import Any

import pytest

from dledger_kube.objects import IMAGES, group_body
from dledger_kube.worker_context import unconnected
from dledger_operator.api_objects import TokenSecretView
from dledger_operator.behaviors.admin_tokens.group_tokens import REFUSED, TAKEN, GroupTokens
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.group_worker import GroupWorker
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.behaviors.report.group_reporter import GroupReporter
from dledger_operator.clients.errors import KubeError, RefusedError
from dledger_operator.resources.event import WARNING

NOTE = EventNote(severity=WARNING, reason="ChildContested", message="leave it alone")


class TokenSecrets:
    """The Secret of a namespace; `found` is what a read of it has."""

    def __init__(self) -> None:
        self.found: TokenSecretView | KubeError | None = None

    async def read(self, namespace: str) -> TokenSecretView | None:
        if isinstance(self.found, KubeError):
            raise self.found
        return self.found

    async def custom_objects(self, kind: str, namespace: str) -> list[Any]:
        return [group_body()]

    async def write(self, namespace: str, *_: object) -> None:
        assert self.found is None


def context_of(secrets: TokenSecrets | None = None) -> Context:
    api = SimpleNamespace(tokens=secrets, custom_objects=getattr(secrets, "custom_objects", None))
    return unconnected(api)


async def is_woken(worker: GroupWorker, loop: str) -> bool:
    return await worker.loops.wakes[loop].wait(0.01)


def test_an_event_that_was_added_wakes_the_report() -> None:
    woken: list[str] = []
    reporter = GroupReporter(context_of(), {}, lambda: woken.append("report"))

    reporter.add_event(NOTE)

    assert woken == ["report"]


@pytest.mark.parametrize("part", ["_canary", "_tokens", "_placer"])
async def test_each_part_of_a_worker_wakes_the_report_with_its_events(part: str) -> None:
    worker = GroupWorker(group_body(), context_of(), lambda: None)
    assert not await is_woken(worker, "report")

    getattr(worker, part)._on_event(NOTE)

    assert await is_woken(worker, "report")


@pytest.mark.parametrize("reason", [REFUSED, TAKEN])
async def test_a_token_problem_wakes_the_report_when_it_comes_and_when_it_goes(reason: str) -> None:
    secrets, woken = TokenSecrets(), list[str]()
    snapshot = GroupSnapshot.of(group_body({"adminToken": {"required": True}}), IMAGES)
    tokens = GroupTokens(
        context_of(secrets), snapshot, lambda _: None, lambda: woken.append("report")
    )

    async def run() -> None:
        try:
            await tokens.run_once()
        except RefusedError:
            assert reason == REFUSED

    await run()
    assert woken == []
    others = TokenSecretView(is_ours=False, entries={}, resource_version="1")
    secrets.found = RefusedError("get Secret: forbidden") if reason == REFUSED else others
    await run()
    await run()
    assert snapshot.token_problem is not None
    assert snapshot.token_problem.reason == reason
    assert woken == ["report"]
    secrets.found = None
    await run()
    assert woken == ["report", "report"]


async def test_a_worker_is_told_of_a_token_problem() -> None:
    secrets = TokenSecrets()
    secrets.found = RefusedError("get Secret: forbidden")
    body = group_body({"adminToken": {"required": True}})
    worker = GroupWorker(body, context_of(secrets), lambda: None)

    with pytest.raises(RefusedError):
        await worker._tokens.run_once()

    assert await is_woken(worker, "report")

"""An object whose time is over and that the API server does not let the operator delete."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from dledger_kube.one_off_world import OneOffWorld
from dledger_kube.replace_world import ReplaceWorld, replace_body
from dledger_kube.switchover_world import SwitchoverWorld, switchover_body
from dledger_operator.behaviors.one_off.stepped import SteppedWorker
from dledger_operator.clients.errors import RefusedError

HOUR_S = 3600.0
DENIED = "a webhook denied the request"
ENDED = {"phase": "Succeeded", "finishedAt": "2026-01-01T00:00:00Z", "conditions": []}


@pytest.fixture
def denied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the API server says to a deletion now; nothing if it permits it."""
    words, permit = [DENIED], OneOffWorld.delete_custom_object

    async def delete(world: OneOffWorld, kind: str, body: Mapping[str, Any]) -> None:
        if words:
            world.request(lambda: None)
            raise RefusedError(words[-1])
        await permit(world, kind, body)

    monkeypatch.setattr(OneOffWorld, "delete_custom_object", delete)
    return words


@pytest.mark.parametrize(
    ("world", "body"),
    [(SwitchoverWorld(), switchover_body), (ReplaceWorld(), replace_body)],
    ids=["switchover", "replacement"],
)
async def test_a_refused_deletion_is_told_once_and_tried_again_every_five_minutes(
    world: OneOffWorld, body: Any, denied: list[str]
) -> None:
    world.objects["old-uid"] = body(name="old", ttlAfterFinished="1m") | {"status": ENDED}
    world.pass_time(120.0)
    worker = cast("SteppedWorker[Any]", cast("Any", world).worker("old-uid"))

    async def work(for_s: float) -> None:
        end_s = world.now_s + for_s
        while world.now_s < end_s and not worker.done():
            again_s = await worker._run_once()
            world.pass_time(worker.pace.interval_s if again_s is None else again_s)

    await work(HOUR_S)
    assert world.requests <= 2 * 13, "a LIST and a DELETE each time"
    assert world.events == [f"Warning DeletionRefused: {DENIED}"]

    denied.append("exceeded your patience")
    await work(HOUR_S)
    assert world.events[1:] == ["Warning DeletionRefused: exceeded your patience"]

    denied.clear()
    await work(HOUR_S)
    assert worker.done()
    assert world.objects == {}

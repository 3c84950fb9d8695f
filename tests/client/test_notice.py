"""The notice of what a command waits for, in simulated time."""

import asyncio

import pytest

from dledger_client.commands import notice
from dledger_sim.simulated_loop import SimulatedLoop


def test_a_notice_tells_the_whole_seconds_that_have_passed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It once rounded: on a slow machine it told of 2 s before the end of the first 1.9 s."""
    monkeypatch.setattr(notice, "POLL_S", 0.85)

    async def wait() -> None:
        async with notice.shown("g0", 1.9, lambda: "no leader"):
            await asyncio.sleep(1.8)

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(wait())

    assert capsys.readouterr().err == "dledger: waiting for group g0, 1 s of 1.9 s: no leader\n"

"""Settings that change while a member runs."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dledger_formats.live_settings import FILE_BYTES_MAX
from dledger_formats.settings import NodeSettings
from dledger_node.shell.live_settings import LiveSettings
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "live"


def settings_with(file: Path) -> NodeSettings:
    return NodeSettings(
        group="g",
        self_id="n0",
        peers={"n0": "127.0.0.1:1"},
        store_base_dir="/nowhere",
        live_settings_file=str(file),
    )


def replace(file: Path, text: str) -> None:
    """Write as Kubernetes does: the new content appears at once."""
    new = file.with_name("new")
    new.write_text(text)
    new.replace(file)


@contextlib.asynccontextmanager
async def watched(live: LiveSettings) -> AsyncIterator["asyncio.Queue[NodeSettings]"]:
    """Run `live`, and yield the queue of the settings that it applies."""
    applied: asyncio.Queue[NodeSettings] = asyncio.Queue()
    task = asyncio.create_task(live.run(applied.put_nowait))
    try:
        yield applied
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_start_takes_the_values_of_the_file(file: Path) -> None:
    replace(file, "DLEDGER_RETENTION_BYTES=7000")

    assert LiveSettings(settings_with(file)).current.retention_bytes == 7000


async def test_a_change_is_applied_and_a_removed_line_falls_back(file: Path) -> None:
    replace(file, "")
    live = LiveSettings(settings_with(file))

    async with watched(live) as applied:
        replace(file, "DLEDGER_RETENTION_BYTES=8000")
        changed = await asyncio.wait_for(applied.get(), 10)
        replace(file, "# nothing\n")
        restored = await asyncio.wait_for(applied.get(), 10)

    assert (changed.retention_bytes, restored.retention_bytes) == (8000, 0)


@pytest.mark.parametrize(
    ("mistake", "word"),
    [("DLEDGER_RETENTION_BYTES=x", "whole number"), ("#" * (FILE_BYTES_MAX + 1), "over")],
    ids=["wrong value", "too long"],
)
async def test_a_mistake_changes_nothing_and_is_reported(
    file: Path, mistake: str, word: str
) -> None:
    replace(file, "DLEDGER_RETENTION_BYTES=9000")
    live = LiveSettings(settings_with(file))

    async with watched(live) as applied:
        replace(file, mistake)
        live.wake()
        await asyncio.to_thread(wait_for, lambda: bool(live.problem), "the mistake is reported")
        in_force, problem = live.current.retention_bytes, live.problem
        replace(file, "DLEDGER_RETENTION_BYTES=9500")
        live.wake()
        mended = await asyncio.wait_for(applied.get(), 10)

    assert in_force == 9000
    assert word in problem
    assert str(file) in problem
    assert (mended.retention_bytes, live.problem) == (9500, "")


async def test_a_file_that_is_missing_is_reported_and_read_once_it_exists(file: Path) -> None:
    live = LiveSettings(settings_with(file))
    assert "No such file" in live.problem

    async with watched(live) as applied:
        replace(file, "DLEDGER_RETENTION_BYTES=9000")
        changed = await asyncio.wait_for(applied.get(), 10)

    assert (changed.retention_bytes, live.problem) == (9000, "")


async def test_a_problem_ends_when_the_same_file_is_there_again(file: Path) -> None:
    replace(file, "DLEDGER_RETENTION_BYTES=9000")
    live = LiveSettings(settings_with(file))
    away = file.with_name("away")

    async with watched(live):
        await asyncio.to_thread(file.rename, away)
        await asyncio.to_thread(wait_for, lambda: bool(live.problem), "the loss is reported")
        await asyncio.to_thread(away.rename, file)
        await asyncio.to_thread(wait_for, lambda: not live.problem, "the problem has ended")

    assert live.current.retention_bytes == 9000


@pytest.mark.group
def test_a_running_member_takes_limits_and_reports_what_is_in_force(tmp_path: Path) -> None:
    file = tmp_path / "live"
    file.write_text("")
    folder = tmp_path / "group"
    folder.mkdir()
    with NodeGroup(folder, members=1, live_settings_file=str(file)) as group:
        member = group.master()

        replace(
            file,
            "DLEDGER_CONNECTIONS_PER_ADDRESS_MAX=7\nDLEDGER_LOG_LEVEL=debug\n"
            "DLEDGER_CLIENT_PENDING_APPENDS_MAX=8\nDLEDGER_CLIENT_REQUESTS_PER_S_MAX=9000",
        )
        group.wait_for_status(
            member,
            lambda view: view.settings["DLEDGER_CONNECTIONS_PER_ADDRESS_MAX"] == "7",
            "has taken the limit",
        )
        replace(file, "DLEDGER_GROUP=other")
        os.kill(group.process_id(member), signal.SIGHUP)
        group.wait_for_status(
            member,
            lambda view: "cannot change while the member runs" in view.settings_problem,
            "reports the mistake",
        )

        view = group.status(member)
        assert view.settings["DLEDGER_LOG_LEVEL"] == "debug"
        assert view.settings["DLEDGER_CLIENT_PENDING_APPENDS_MAX"] == "8"
        assert view.settings["DLEDGER_CLIENT_REQUESTS_PER_S_MAX"] == "9000"
        wait_for(lambda: group.get(member, "/readyz")[0] == 200, "the member serves")

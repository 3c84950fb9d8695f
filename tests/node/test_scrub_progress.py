"""The progress of scrubbing: told truthfully, and kept over a restart; real processes."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_formats.http.status import StorageState
from dledger_formats.log import disk
from dledger_formats.settings import NodeSettings
from dledger_group.damaged import SEGMENT_BYTES, SIZES, append_all, counted, wait_until_level
from dledger_node.config import store_folder
from dledger_node.errors import Damage, StoreDamagedError, StoreError, StoreFullError
from dledger_node.healing import live_mending
from dledger_node.healing.live_mending import LiveMender
from dledger_node.healing.mending import MendedTotals
from dledger_node.store.log.damaged_ranges import Scanned
from dledger_node.store.log.entry_walk import Cursor
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files import scrub_file
from dledger_node.volume import scrub
from dledger_node.volume.scrub import SLICE_BYTES
from dledger_sim.stage.driver import CoreDriver
from dledger_store_files.contents import flush
from dledger_store_files.damage import flip
from tools.groups.node_group import NodeGroup
from tools.groups.ports import free_ports
from tools.groups.waiting import wait_for

BODIES = [bytes([number % 251]) * 10_000 for number in range(400)]


def began_at(group: NodeGroup, beyond: int) -> int:
    """Return where this process began to scrub, once it has read beyond a position."""
    group.wait_for_status(
        "n0", lambda view: view.scrub_position_bytes > beyond, f"has read beyond {beyond}"
    )
    position = counted(group, "n0", "scrub_position_bytes")
    return round(position - counted(group, "n0", "scrubbed_bytes_total"))


@pytest.mark.storage
async def test_a_pass_of_scrubbing_goes_on_where_it_was_before_a_restart(tmp_path: Path) -> None:
    """At the lowest rate, a pass over this log takes 16 s. Each restart once began it again."""
    with NodeGroup(tmp_path, members=1) as group:
        await append_all(group, BODIES)
        group.stop("n0")
        group.start("n0")
        assert began_at(group, 0) == 0
        reached = group.status("n0").scrub_position_bytes
        assert reached >= SLICE_BYTES

        group.kill("n0")
        group.start("n0")

        # The place is saved after the first piece, and then once a minute.
        assert 0.9 * SLICE_BYTES <= began_at(group, reached) <= reached


@pytest.mark.storage
async def test_scrub_reads_followers_first(tmp_path: Path) -> None:
    """A pass takes 16 s at the lowest rate, and a leader waits for 30 s of this interval."""
    with NodeGroup(tmp_path, scrub_interval_s=120) as group:
        await append_all(group, BODIES)
        wait_until_level(group)
        for member in group.running():
            group.stop(member)
        for member in group.peers:
            group.start(member)
        leader = group.master()
        for follower in sorted(set(group.peers) - {leader}):
            wait_for(
                lambda m=follower: counted(group, m, "scrub_passes_total") == 1,
                "a follower has read its log",
            )

        assert group.master() == leader
        assert counted(group, leader, "scrub_passes_total") == 0, "it began, and waits since it led"
        wait_for(
            lambda: counted(group, leader, "scrub_passes_total") == 1, "the leader reads its log"
        )


@pytest.mark.storage
async def test_a_status_tells_the_progress_of_scrubbing_and_mending_as_the_metrics_do(
    tmp_path: Path,
) -> None:
    with NodeGroup(tmp_path, scrub_interval_s=1, **SIZES) as group:
        await append_all(group, [body[:1000] for body in BODIES])
        wait_until_level(group)
        flip(group.store_folder("n0") / disk.DATA_FOLDER, 5000, segment_bytes=SEGMENT_BYTES)

        group.wait_for_status("n0", lambda view: view.mended_ranges == 1, "tells what it mended")
        group.wait_for_status("n0", lambda view: view.scrub_passes > 1, "tells its passes")

        assert counted(group, "n0", "mended_ranges_total") == 1
        assert counted(group, "n0", "scrub_passes_total") > 1


class SilentPages(NodeGroup):
    """Members that do not reach each other's pages, from which they would mend."""

    def settings(self, member: str) -> NodeSettings:
        """See `NodeGroup`."""
        found = super().settings(member)
        return replace(found, http_peers=dict.fromkeys(found.http_peers, "127.0.0.1:1"))


@pytest.mark.storage
async def test_a_member_says_which_damage_waits_for_a_peer_and_serves_on(tmp_path: Path) -> None:
    with SilentPages(tmp_path, scrub_interval_s=1, **SIZES) as group:
        await append_all(group, [body[:1000] for body in BODIES])
        wait_until_level(group)
        assert group.status("n0").storage is StorageState.SOUND
        flip(group.store_folder("n0") / disk.DATA_FOLDER, 5000, segment_bytes=SEGMENT_BYTES)

        group.wait_for_status(
            "n0",
            lambda view: view.storage is StorageState.HEALING and view.ready,
            "is healing and ready",
        )

        assert "Not mended yet" in group.status("n0").unmended
        assert b'dledger_node_storage{state="Healing"} 1.0' in group.get("n0", "/metrics")[1]
        assert b"dledger_node_unmended 1.0" in group.get("n0", "/metrics")[1]
        assert counted(group, "n0", "mending_failures_total") > 0
        assert b"dledger_node_unmended 0.0" in group.get("n1", "/metrics")[1]
        await append_all(group, [b"the group goes on"])


def test_the_place_of_a_pass_is_read_back(tmp_path: Path) -> None:
    assert scrub_file.load(tmp_path) == 0

    scrub_file.save(tmp_path, 4711)

    assert scrub_file.load(tmp_path) == 4711


@pytest.mark.parametrize("raw", [b"", b"nextIndex=12\n#crc32=00000000\n", b"\xff" * 5000, b"x=1\n"])
def test_a_damaged_place_of_a_pass_counts_as_missing(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / scrub_file.FILE_NAME).write_bytes(raw)

    assert scrub_file.load(tmp_path) == 0


def test_a_place_that_cannot_be_saved_raises_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as found:
        scrub_file.save(tmp_path / "missing", 1)

    assert not isinstance(found.value, StoreFullError)


def lone_settings(folder: Path, scrub_interval_s: int) -> NodeSettings:
    """Return the settings of n0, which has no peer."""
    ports = free_ports()
    return NodeSettings(
        group="g", self_id="n0", peers={"n0": f"127.0.0.1:{next(ports)}"}, http_port=next(ports),
        http_peers={"n0": f"127.0.0.1:{next(ports)}"}, store_base_dir=str(folder),
        scrub_interval_s=scrub_interval_s, **SIZES,
    )  # fmt: skip


async def test_a_place_that_cannot_be_saved_does_not_begin_the_pass_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The place is only a hint. Once, the end of such a log was never read."""
    monkeypatch.setattr(scrub, "SLICE_BYTES", 16 << 10)
    monkeypatch.setattr(scrub, "BYTES_PER_S_MIN", 4 << 20)
    monkeypatch.setattr(scrub, "SAVED_S", 0.0)
    monkeypatch.setattr(scrub, "RETRY_S_MAX", 0.5)
    settings = lone_settings(tmp_path, scrub_interval_s=1)
    with contextlib.closing(LogStore.open(store_folder(settings), **SIZES)) as store:
        store.append_bodies([body[:1000] for body in BODIES], 1)
        flush(store)
        store.save_checkpoint(len(BODIES) - 1)
        (store_folder(settings) / scrub_file.FILE_NAME).mkdir()
        left = list[StoreDamagedError]()
        with contextlib.closing(
            scrub.Scrub(settings, store, MendedTotals(), CoreDriver().raft, leave=left.append)
        ) as scrubbing:
            running = asyncio.create_task(scrubbing.run())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(20):
                    while scrubbing.passes < 2:  # noqa: ASYNC110 - a thread reads the log
                        await asyncio.sleep(0.01)
            running.cancel()

    assert scrubbing.passes >= 2
    (warning,) = caplog.records
    assert "cannot save" in warning.message


async def test_a_new_leader_does_not_go_on_telling_of_damage_that_retention_has_removed(
    tmp_path: Path,
) -> None:
    """A leader lets its followers read first, for a quarter of the interval: 15 minutes here."""
    settings = lone_settings(tmp_path, scrub_interval_s=3600)
    core = CoreDriver()
    with contextlib.closing(LogStore.open(store_folder(settings), **SIZES)) as store:
        store.append_bodies([body[:1000] for body in BODIES], 1)
        flush(store)
        store.save_checkpoint(len(BODIES) - 1)
        flip(store_folder(settings) / disk.DATA_FOLDER, 5000, segment_bytes=SEGMENT_BYTES)
        with contextlib.closing(
            scrub.Scrub(settings, store, MendedTotals(), core.raft, leave=lambda _: None)
        ) as scrubbing:
            running = asyncio.create_task(scrubbing.run())
            async with asyncio.timeout(10):
                while not scrubbing.problem:  # noqa: ASYNC110 - a thread reads the log
                    await asyncio.sleep(0.001)
                core.become_leader()
                begin = store.front.save_begin(store.front.sealed_segments()[0].last_index + 1)
                store.front.delete(store.front.forget_before(begin))
                while scrubbing.problem:  # noqa: ASYNC110 - a thread reads the log
                    await asyncio.sleep(0.001)
            running.cancel()

    assert core.raft.leads


async def test_damage_with_a_place_does_not_wait_for_the_search_of_damage_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_mending, "NEARBY_BYTES", 16 << 10)
    settings = lone_settings(tmp_path, scrub_interval_s=3600)
    with contextlib.closing(LogStore.open(store_folder(settings), **SIZES)) as store:
        store.append_bodies([body[:1000] for body in BODIES], 1)
        flush(store)
        store.save_checkpoint(len(BODIES) - 1)
        placed = StoreDamagedError("met by a read", Damage.BAD_ENTRY, len(BODIES) - 2)
        places = list[int]()
        step = LiveMender.step

        def note(
            mender: LiveMender,
            cursor: Cursor,
            bytes_max: int,
            found: StoreDamagedError | None = None,
        ) -> Scanned:
            places.append(cursor.index)
            if len(places) == 2:
                store.damage = placed
            return step(mender, cursor, bytes_max, found)

        monkeypatch.setattr(LiveMender, "step", note)
        store.damage = StoreDamagedError("somewhere", Damage.UNREADABLE)
        with contextlib.closing(
            scrub.Scrub(settings, store, MendedTotals(), CoreDriver().raft, leave=lambda _: None)
        ) as scrubbing:
            running = asyncio.create_task(scrubbing.run())
            async with asyncio.timeout(10):
                while store.damage is not None:  # noqa: ASYNC110 - a thread reads the log
                    await asyncio.sleep(0.001)
            running.cancel()

    assert places[0] < places[1] < len(BODIES) // 2
    assert places[2] == len(BODIES) - 2


@pytest.mark.storage
async def test_a_shorter_interval_counts_while_the_next_pass_is_awaited(tmp_path: Path) -> None:
    file = tmp_path / "live"
    file.write_text("")
    folder = tmp_path / "group"
    folder.mkdir()
    with NodeGroup(folder, members=1, live_settings_file=str(file)) as group:
        await append_all(group, BODIES[:10])
        new = tmp_path / "new"
        new.write_text("DLEDGER_SCRUB_INTERVAL_S=1\n")
        new.replace(file)
        wait_for(
            lambda: counted(group, "n0", "scrub_passes_total") > 2, "further passes have ended"
        )

        assert group.status("n0").settings["DLEDGER_SCRUB_INTERVAL_S"] == "1"

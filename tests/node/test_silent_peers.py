"""A member that starts damaged waits long for silent peers before it sets its log aside."""

import asyncio
import contextlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.settings import NodeSettings
from dledger_group.damaged import BODIES, SEGMENT_BYTES, SIZES
from dledger_node import main
from dledger_node.config import store_folder
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.healing.repair import MEND_PATIENCE_S, StoreRepair
from dledger_node.healing.repair_plan import PeerReport
from dledger_node.raft.ready import HardState
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.hard_state import save_hard_state
from dledger_store_files.contents import flush
from dledger_store_files.damage import flip
from tools.groups.ports import free_ports

FOUND = StoreDamagedError("an entry has rotted", Damage.BAD_ENTRY)


class Stage:
    """A member whose third segment is damaged; its peers have a leader, and give no bytes."""

    def __init__(self, folder: Path, committed_index: int) -> None:
        ports, members = free_ports(), ("n0", "n1", "n2")
        settings = NodeSettings(
            group="g", self_id="n0", http_port=next(ports), store_base_dir=str(folder),
            peers={one: f"127.0.0.1:{next(ports)}" for one in members},
            http_peers={one: f"127.0.0.1:{next(ports)}" for one in members}, **SIZES,
        )  # fmt: skip
        self.folder = store_folder(settings)
        with contextlib.closing(LogStore.open(self.folder, **SIZES)) as store:
            store.append_bodies(BODIES, 1)
            flush(store)
            store.save_checkpoint(committed_index)
        save_hard_state(self.folder, HardState(term=1, vote_for=None))
        data = self.folder / disk.DATA_FOLDER
        flip(data, 2 * SEGMENT_BYTES + 5000, segment_bytes=SEGMENT_BYTES)
        self.now_s = 1000.0
        self.member = StoreRepair(
            settings, lambda: datetime.now(UTC), monotonic_s=lambda: self.now_s
        )

    @property
    def set_aside(self) -> list[Path]:
        return list(self.folder.glob("damaged-*"))


@pytest.fixture
def others_have_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    report = PeerReport(leader_id="n1", term=2, joining=False, voters=("n0", "n1", "n2"))

    async def ask(repair: StoreRepair) -> dict[str, PeerReport]:
        return {"n1": report, "n2": report}

    monkeypatch.setattr(StoreRepair, "_ask_peers", ask)


@pytest.mark.usefixtures("others_have_a_leader")
async def test_no_sound_segment_is_set_aside_while_silent_peers_may_mend_the_damage(
    tmp_path: Path,
) -> None:
    """Once, half a minute of silence was enough."""
    stage = Stage(tmp_path, committed_index=len(BODIES) - 1)

    for _ in range(20):
        obstacle = await stage.member.repair(FOUND)
        stage.now_s += 30.0

        assert "Not mended yet" in obstacle
        assert not stage.set_aside
    assert f"within {MEND_PATIENCE_S - 19 * 30:.0f} s" in obstacle


@pytest.mark.usefixtures("others_have_a_leader")
async def test_a_log_that_no_peer_mends_for_long_is_set_aside_from_the_damage_on(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, committed_index=len(BODIES) - 1)
    await stage.member.repair(FOUND)
    stage.now_s += MEND_PATIENCE_S

    assert await stage.member.repair(FOUND) == ""

    (folder,) = stage.set_aside
    assert disk.file_name(2 * SEGMENT_BYTES) in [path.name for path in folder.rglob("0*")]


@pytest.mark.usefixtures("others_have_a_leader")
async def test_each_outage_gives_silent_peers_the_whole_time(tmp_path: Path) -> None:
    """The first one ended by itself: the disk was away for a moment."""
    stage = Stage(tmp_path, committed_index=len(BODIES) - 1)
    await stage.member.repair(FOUND)
    stage.member.note_opened()
    stage.now_s += 10 * MEND_PATIENCE_S

    obstacle = await stage.member.repair(FOUND)

    assert f"within {MEND_PATIENCE_S:.0f} s" in obstacle
    assert not stage.set_aside


async def test_a_member_tells_its_repair_that_its_store_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[StoreRepair] = []
    stop = asyncio.Event()

    def note(repair: StoreRepair) -> None:
        noted.append(repair)
        stop.set()

    monkeypatch.setattr(StoreRepair, "note_opened", note)
    ports = free_ports()
    settings = NodeSettings(
        group="g", self_id="n0", http_port=next(ports), store_base_dir=str(tmp_path),
        peers={"n0": f"127.0.0.1:{next(ports)}"}, **SIZES,
    )  # fmt: skip

    await asyncio.wait_for(main.serve(settings, stop), 30)

    assert len(noted) == 1


@pytest.mark.usefixtures("others_have_a_leader")
async def test_damage_that_no_peer_can_ever_mend_is_set_aside_at_once(tmp_path: Path) -> None:
    """No committed entry follows it."""
    stage = Stage(tmp_path, committed_index=10)

    assert await stage.member.repair(FOUND) == ""

    assert stage.set_aside

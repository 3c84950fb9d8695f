"""A snapshot on its way between two members, over a network that loses and repeats messages."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from dledger_formats.protocol.register import SET
from dledger_node.errors import StoreError
from dledger_node.raft.messages import InstallSnapshotRequest
from dledger_node.remoting import native
from dledger_node.remoting.message_kinds import PeerMessage
from dledger_node.remoting.snapshot_messages import SnapshotChunk, SnapshotChunkRequest
from dledger_node.state_machine.install import Installs
from dledger_node.state_machine.machine import CommittedEntry
from dledger_node.state_machine.register import Register
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.snapshots.snapshots import Snapshots

KEYS = 500
FIRST_INDEX = 100


def register() -> Register:
    made = Register()
    made.apply([CommittedEntry(k, SET.pack(k, k * k)) for k in range(KEYS)])
    return made


DATA = b"".join(register().dump())


class Member:
    """One member's store and snapshots."""

    def __init__(self, name: str, network: "Network") -> None:
        folder = network.folder / name
        self.name = name
        self.store = LogStore.open(folder, segment_size_bytes=4096, index_segment_size_bytes=320)
        self.snapshots = Snapshots(folder, reserved=2)
        self.failures: list[BaseException] = []
        self.installs = Installs(
            "register", self.snapshots, self.store, self_id=name, send=network.send,
            fail=self.failures.append, ask_again_s=0.0, chunk_bytes_max=256,
        )  # fmt: skip

    def data(self) -> bytes:
        """Return the bytes of the newest snapshot."""
        found: list[bytes] = []
        self.snapshots.read(self.snapshots.newest_first[0], lambda file: found.append(file.read()))
        return found[0]


class Network:
    """Carries messages as bytes. `fate` decides how often one arrives, and may change its bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fate: Callable[[PeerMessage], list[PeerMessage]] = lambda message: [message]
        self.sent: list[PeerMessage] = []
        self.members = {name: Member(name, self) for name in ("n0", "n1", "n2")}

    def send(self, message: PeerMessage) -> None:
        self.sent.append(message)
        for each in self.fate(message):
            frame = b"".join(native.encode(each))
            raw = frame[8 + int.from_bytes(frame[4:8], "big") :]
            again = native.decode(raw, each.sender, each.receiver)
            assert isinstance(again, SnapshotChunkRequest | SnapshotChunk)
            asyncio.get_running_loop().call_soon(
                self.members[each.receiver].installs.receive, again
            )

    async def push_until(self, done: Callable[[], bool], sender: str = "n0") -> int:
        """Let the leader push, as in every heartbeat round, until a condition holds. Return the
        number of pushes.
        """
        pushes = 0
        async with asyncio.timeout(60):
            while not done():
                pushes += 1
                self.push(sender)
                await self.rest()
        return pushes

    def push(self, sender: str = "n0", first_index: int = FIRST_INDEX) -> bool:
        """Push. Tell whether the follower n1 lacks a snapshot for it."""
        return self.members["n1"].installs.lacks(
            InstallSnapshotRequest(
                sender=sender, receiver="n1", term=5, first_index=first_index,
                last_index=first_index, entries_term=2, committed_index=first_index,
            )
        )  # fmt: skip

    async def rest(self) -> None:
        """Wait until no member has anything to do."""
        for _ in range(3):
            while tasks := [t for m in self.members.values() for t in m.installs._tasks]:
                await asyncio.wait(tasks)
            await asyncio.sleep(0)

    @property
    def chunks(self) -> list[SnapshotChunk]:
        return [message for message in self.sent if isinstance(message, SnapshotChunk)]


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[Network]:
    made = Network(tmp_path)
    yield made
    for member in made.members.values():
        await member.installs.close()
        member.store.close()


def has_it(network: Network) -> Callable[[], bool]:
    return lambda: network.members["n1"].snapshots.newest_index >= FIRST_INDEX - 1


async def test_a_snapshot_comes_in_chunks_and_then_the_log_may_begin_anew(network: Network) -> None:
    network.members["n0"].snapshots.save(150, 2, register().dump())
    assert network.push()
    assert "waits for a snapshot of the register from n0" in network.members["n1"].installs.awaited

    await network.push_until(has_it(network))

    n1 = network.members["n1"]
    assert n1.snapshots.newest_first == network.members["n0"].snapshots.newest_first
    assert n1.data() == DATA
    assert len(network.chunks) == -(-len(DATA) // 256)
    assert not network.push()
    assert n1.installs.awaited == ""
    assert n1.installs.installed == 1
    # It is there at the next start too, and nothing else.
    assert [path.name for path in (network.folder / "n1" / "snapshot").iterdir()] == [
        "snapshot_150"
    ]


@pytest.mark.parametrize("seed", range(5))
async def test_it_goes_on_where_it_stopped_when_messages_are_lost_and_repeated(
    network: Network, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    choices = random.Random(seed)
    network.members["n0"].snapshots.save(150, 2, register().dump())
    network.fate = lambda message: [message] * choices.choice((0, 0, 1, 1, 1, 2))

    pushes = await network.push_until(has_it(network))

    assert network.members["n1"].data() == DATA
    assert "is no snapshot" not in caplog.text, "no chunk was written twice"
    assert pushes > 3, "something was lost"
    begun = [chunk for chunk in network.chunks if chunk.offset == 0]
    assert len(begun) < pushes, "it did not start again each time"


async def test_another_leader_with_the_same_state_sends_the_rest(network: Network) -> None:
    for name in ("n0", "n2"):
        network.members[name].snapshots.save(150, 2, register().dump())
    network.fate = lambda message: [message] if len(network.sent) < 8 else []
    network.push()
    await network.rest()
    network.fate = lambda message: [message]

    await network.push_until(has_it(network), "n2")

    assert network.members["n1"].data() == DATA
    from_n2 = [chunk.offset for chunk in network.chunks if chunk.sender == "n2"]
    assert from_n2[0] > 0, "what was there stays"


async def test_a_fetch_from_a_leader_with_another_state_starts_again(network: Network) -> None:
    network.members["n0"].snapshots.save(150, 2, register().dump())
    network.members["n2"].snapshots.save(150, 2, [DATA[:16], DATA[16:][::-1]])
    network.members["n2"].snapshots.save(160, 2, register().dump())
    network.fate = lambda message: [message] if len(network.sent) < 8 else []
    network.push()
    await network.rest()
    network.fate = lambda message: [message]

    await network.push_until(has_it(network), "n2")

    assert network.members["n1"].data() == DATA


async def test_a_snapshot_that_is_being_fetched_is_in_use(network: Network) -> None:
    n0 = network.members["n0"]
    n0.snapshots.save(150, 2, register().dump())
    network.fate = lambda message: [message] if len(network.sent) < 6 else []
    network.push()
    await network.rest()

    for index in (151, 152, 153):
        n0.snapshots.save(index, 2, register().dump(), n0.installs.in_use())
    network.fate = lambda message: [message]
    await network.push_until(has_it(network))

    assert network.members["n1"].snapshots.newest_index == 150


async def test_a_snapshot_that_was_removed_meanwhile_gives_way_to_the_newest(
    network: Network,
) -> None:
    n0 = network.members["n0"]
    n0.snapshots.save(150, 2, register().dump())
    network.fate = lambda message: [message] if len(network.sent) < 6 else []
    network.push()
    await network.rest()

    for index in (151, 152):
        n0.snapshots.save(index, 2, register().dump())
    network.fate = lambda message: [message]
    await network.push_until(has_it(network))

    assert network.members["n1"].snapshots.newest_index == 152
    assert network.members["n1"].data() == DATA


async def test_bytes_that_changed_on_the_way_are_fetched_again(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    network.members["n0"].snapshots.save(150, 2, register().dump())
    spoiled: list[PeerMessage] = []

    def spoil(message: PeerMessage) -> list[PeerMessage]:
        if isinstance(message, SnapshotChunk) and message.offset == 512 and not spoiled:
            fields = {name: getattr(message, name) for name in message.__dataclass_fields__}
            message = SnapshotChunk(**fields | {"data": bytes(message.data)[::-1]})
            spoiled.append(message)
        return [message]

    network.fate = spoil
    await network.push_until(has_it(network))

    assert spoiled
    assert "the snapshot from n0 is damaged" in caplog.text
    assert network.members["n1"].data() == DATA


async def test_a_snapshot_that_cannot_be_loaded_is_not_adopted(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    network.members["n0"].snapshots.save(150, 2, [b"another machine's state"])
    network.push()
    await network.rest()

    assert "the snapshot from n0 is damaged" in caplog.text
    assert network.members["n1"].snapshots.newest_index == -1
    assert network.push(), "the log stays as it is"


async def test_a_leader_without_a_sufficient_snapshot_is_asked_again(network: Network) -> None:
    network.members["n0"].snapshots.save(FIRST_INDEX - 2, 2, register().dump())
    for _ in range(3):
        assert network.push()
        await network.rest()
    assert network.members["n1"].snapshots.newest_index == -1

    network.members["n0"].snapshots.save(FIRST_INDEX - 1, 2, register().dump())
    await network.push_until(has_it(network))


def rot(snapshots: Snapshots) -> None:
    """Change a byte of the newest snapshot, as a failing disk may."""
    path = snapshots.folder_of(snapshots.newest_first[0]) / "data"
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def make_unreadable(snapshots: Snapshots) -> None:
    """Let reads of the newest snapshot fail, as those of a bad sector do."""
    path = snapshots.folder_of(snapshots.newest_first[0]) / "data"
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [rot, make_unreadable])
async def test_a_damaged_snapshot_gives_way_to_the_one_before(
    network: Network, damage: Callable[[Snapshots], None]
) -> None:
    n0 = network.members["n0"]
    for index in (150, 160):
        n0.snapshots.save(index, 2, register().dump())
    damage(n0.snapshots)

    await network.push_until(has_it(network))

    assert network.members["n1"].snapshots.newest_index == 150
    assert network.members["n1"].data() == DATA
    assert n0.snapshots.newest_index == 150, "the other counts no more"


async def test_a_snapshot_that_is_damaged_while_it_is_sent_gives_way_too(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    n0 = network.members["n0"]
    for index in (150, 160):
        n0.snapshots.save(index, 2, register().dump())
    network.fate = lambda message: [message] if len(network.sent) < 6 else []
    network.push()
    await network.rest()
    rot(n0.snapshots)
    network.fate = lambda message: [message]

    await network.push_until(has_it(network))

    assert "the snapshot from n0 is damaged" in caplog.text
    assert network.members["n1"].snapshots.newest_index == 150


async def test_a_member_s_own_snapshot_must_reach_up_to_the_log(network: Network) -> None:
    n1 = network.members["n1"]
    n1.snapshots.save(FIRST_INDEX - 2, 2, register().dump())
    assert network.push()

    n1.snapshots.save(FIRST_INDEX - 1, 2, register().dump())
    assert not network.push()


async def test_a_log_that_holds_the_entry_needs_no_snapshot(network: Network) -> None:
    store = network.members["n1"].store
    store.append_bodies([b""] * (FIRST_INDEX + 1), 2)
    assert not network.push()
    store.append_bodies([b""] * 5, 3)
    assert network.push(first_index=FIRST_INDEX + 2), "it holds another entry there"


async def test_no_snapshot_is_awaited_once_the_log_has_grown_past_it(
    network: Network,
) -> None:
    n1 = network.members["n1"]
    n1.store.append_bodies([b""] * 50, 1)
    network.push()
    assert n1.installs.awaited.startswith("waits for")
    n1.store.append_bodies([b""] * 60, 1)

    assert n1.installs.awaited == ""


async def test_a_snapshot_that_the_log_contradicts_is_not_sent(network: Network) -> None:
    n0 = network.members["n0"]
    n0.store.append_bodies([b""] * 200, 3)
    n0.snapshots.save(150, 2, register().dump())
    network.push()
    await network.rest()

    assert not network.chunks


async def test_a_broken_volume_ends_the_member(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.members["n0"].snapshots.save(150, 2, register().dump())

    def broken(*_: Any) -> None:
        raise StoreError("the volume is broken")

    monkeypatch.setattr(network.members["n1"].snapshots, "installing", broken)
    network.push()
    await network.rest()

    assert [str(error) for error in network.members["n1"].failures] == ["the volume is broken"]


def sound_chunk(**changed: Any) -> SnapshotChunk:
    fields: dict[str, Any] = {
        "sender": "n0", "receiver": "n1", "last_included_index": 9, "last_included_term": 1,
        "data_bytes": 10, "data_crc32": 7, "offset": 4, "data": b"abc",
    }  # fmt: skip
    return SnapshotChunk(**fields | changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"data": b""}, {"data": bytes(7)}, {"offset": -1}, {"offset": 11, "data": b""},
        {"last_included_index": -1}, {"last_included_term": -1}, {"data_crc32": -1},
        {"data_crc32": 1 << 32}, {"data_bytes": 1 << 40, "data": bytes((1 << 20) + 1)},
    ],
)  # fmt: skip
def test_an_impossible_chunk_is_rejected(changed: dict[str, Any]) -> None:
    sound_chunk()
    with pytest.raises(ValueError, match=r"\w"):
        sound_chunk(**changed)


@pytest.mark.parametrize(("index", "offset"), [(-2, 0), (-1, -1)])
def test_an_impossible_request_is_rejected(index: int, offset: int) -> None:
    with pytest.raises(ValueError, match="cannot exist"):
        SnapshotChunkRequest(sender="n1", receiver="n0", index=index, offset=offset)

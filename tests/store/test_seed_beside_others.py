"""`dledger-node seed`: what the other members of the group say decides too."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dledger_formats.http.status import FlushDiskType, NodeStatus, Role
from dledger_store_files.seeding import archive_without_voters, info_of, member, run


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archive_without_voters(tmp_path_factory.mktemp("archive"))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "store").glob("*"))


def said(**changes: object) -> NodeStatus:
    """What another first voter says of itself."""
    view = NodeStatus(
        group="g", self_id="n1", role=Role.FOLLOWER, term=0, leader_id=None, master=False,
        ready=False, reason="joining", broker_id=-1, ledger_begin_index=-1, ledger_end_index=-1,
        ledger_end_term=-1, committed_index=-1, durable_index=-1, joining=True, peers={},
        flush_disk_type=FlushDiskType.SYNC_FLUSH, group_identity="new", version="1",
    )  # fmt: skip
    return replace(view, **changes)


class Neighbour(ThreadingHTTPServer):
    """Serves what n1 says."""

    told = said()


class Page(BaseHTTPRequestHandler):
    server: Neighbour

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.told.to_json())

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture
def neighbour() -> Iterator[Neighbour]:
    with Neighbour(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def beside(neighbour: Neighbour, folder: Path, archive: Path, **says: object) -> int:
    """Seed n0 while n1 says this."""
    neighbour.told = said(**says)
    address = f"127.0.0.1:{neighbour.server_port}"
    return run(member(folder, archive, http_peers={"n1": address}), archive)


def test_a_member_gets_its_log_from_others_once_one_says_that_the_group_has_begun(
    tmp_path: Path, archive: Path, neighbour: Neighbour
) -> None:
    end = info_of(archive).end_index
    for says in (
        {"term": 9, "leader_id": "n2"},
        {"term": 9, "ledger_end_index": end + 1, "joining": False},
    ):
        assert beside(neighbour, tmp_path, archive, **says) == 0
        assert names_in(tmp_path) == []


def test_members_without_a_log_do_not_say_that_the_group_has_begun(
    tmp_path: Path, archive: Path, neighbour: Neighbour
) -> None:
    """A blank member learns the archive's term from those that have begun with it."""
    assert beside(neighbour, tmp_path, archive, term=info_of(archive).end_term) == 0
    assert names_in(tmp_path) == ["dledger-n0"]


@pytest.mark.parametrize("ends_alike", [False, True])
def test_members_with_two_archives_are_an_error(
    tmp_path: Path, archive: Path, neighbour: Neighbour,
    capsys: pytest.CaptureFixture[str], *, ends_alike: bool,
) -> None:  # fmt: skip
    info = info_of(archive)
    says = {
        "term": info.end_term, "ledger_end_index": info.end_index - (not ends_alike),
        "ledger_end_term": info.end_term,
    }  # fmt: skip
    assert beside(neighbour, tmp_path, archive, **says, seed_sha256="5a" * 32) == 1
    assert "n1 began with another archive: its copySha256 is 5a5a" in capsys.readouterr().err
    assert names_in(tmp_path) == []
    assert beside(neighbour, tmp_path, archive, **says, seed_sha256=info.copy_sha256) == 0
    assert names_in(tmp_path) == ["dledger-n0"]


@pytest.mark.parametrize(
    ("says", "status"),
    [
        ({"term": 9, "leader_id": "n2"}, 0),
        ({"term": 9, "ledger_end_index": 1000, "joining": False}, 0),
        ({"term": 9, "leader_id": "n2", "group_identity": "another"}, 1),
        ({}, 1),
    ],
    ids=["a leader", "a later log", "of another group", "nothing"],
)
def test_a_member_with_another_archive_starts_if_the_group_has_begun(
    tmp_path: Path, archive: Path, neighbour: Neighbour, says: dict[str, object], status: int
) -> None:
    """The archive was replaced while this member was down; it may still lack later entries."""
    assert beside(neighbour, tmp_path, archive) == 0
    june = archive_without_voters(tmp_path / "june", 2)

    assert beside(neighbour, tmp_path, june, **says) == status

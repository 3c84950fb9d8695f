"""`dledger export` and `import`: from group to group, in order, once, and nothing from damage."""

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from dledger_client.cli import main
from dledger_client.sync import BlockingClient
from dledger_formats.log import disk
from dledger_store_files.archives import extract
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group
COMMAND = [
    sys.executable, "-c", "import sys; from dledger_client.cli import main; sys.exit(main())",
]  # fmt: skip
GOLDEN = Path(__file__).parent.parent / "formats" / "golden"
BODIES = [b"body %d " % n * (n % 50) for n in range(20_000)]


class Groups:
    """A source and an empty destination, of one member each."""

    def __init__(self, source: NodeGroup, destination: NodeGroup, folder: Path) -> None:
        self.source = source
        self.destination = destination
        self.file = folder / "export"

    def export(self, *arguments: str) -> list[str]:
        return ["export", *arguments, servers(self.source), "--group=g", str(self.file)]

    def import_(self, *arguments: str) -> list[str]:
        return ["import", *arguments, servers(self.destination), "--group=g", str(self.file)]


def servers(group: NodeGroup) -> str:
    return f"--servers={','.join(group.peers.values())}"


def client_of(group: NodeGroup) -> BlockingClient:
    return BlockingClient(",".join(group.peers.values()), "g")


def bodies(group: NodeGroup) -> list[bytes]:
    with client_of(group) as client:
        return [entry.body for entry in client.get_range(0) if entry.magic == disk.NORMAL]


def append(group: NodeGroup, given: list[bytes]) -> None:
    with client_of(group) as client:
        for _ in client.append_all(given):
            pass


@pytest.fixture
def groups(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Groups]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with (
        NodeGroup(tmp_path_factory.mktemp("source"), 1) as source,
        NodeGroup(tmp_path_factory.mktemp("destination"), 1) as destination,
    ):
        yield Groups(source, destination, tmp_path)


def saved(tmp_path: Path) -> int:
    path = tmp_path / "state" / "dledger" / "producers" / "g" / "import.json"
    return int(json.loads(path.read_bytes())["acknowledged"]) if path.exists() else 0


def test_a_group_is_moved_with_its_order_and_a_mapping(
    groups: Groups, capsys: pytest.CaptureFixture[str]
) -> None:
    append(groups.source, BODIES[:5000])
    groups.source.kill("n0")
    groups.source.start("n0")
    groups.source.master()
    append(groups.source, BODIES[5000:6000])

    assert main(groups.export()) == 0
    assert main(groups.import_("-o", "json")) == 0

    assert bodies(groups.destination) == BODIES[:6000]
    runs = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    with client_of(groups.source) as old, client_of(groups.destination) as new:
        there = {entry.index: entry.body for entry in new.get_range(0)}
        for entry in old.get_range(0):
            mapped = [
                run["destination"][0] + entry.index - run["source"][0]
                for run in runs
                if run["source"][0] <= entry.index <= run["source"][1]
            ]
            assert len(mapped) == (entry.magic == disk.NORMAL), "a no-op is nowhere"
            assert all(there[index] == entry.body for index in mapped)
    assert all(a["destination"][1] < b["destination"][0] for a, b in pairwise(runs))


def test_an_import_that_is_killed_goes_on_in_order_and_once(groups: Groups, tmp_path: Path) -> None:
    append(groups.source, BODIES)
    assert main(groups.export()) == 0
    for _ in range(4):
        before = saved(tmp_path)
        with subprocess.Popen([*COMMAND, *groups.import_()]) as process:
            wait_for(lambda before=before: saved(tmp_path) > before, "some entries are saved")
            process.kill()
    assert 0 < saved(tmp_path) < len(BODIES)

    assert main(groups.import_()) == 0

    assert bodies(groups.destination) == BODIES


def test_an_import_survives_its_leader(
    groups: Groups, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    append(groups.source, BODIES)
    assert main(groups.export()) == 0
    with NodeGroup(tmp_path_factory.mktemp("three")) as three:
        command = ["import", servers(three), "--group=g", str(groups.file)]
        three.master()
        with subprocess.Popen([*COMMAND, *command]) as process:
            wait_for(lambda: saved(tmp_path) > 0, "some entries are saved")
            three.kill(three.master())
            assert process.wait(timeout=60) == 0

        assert bodies(three) == BODIES


def test_a_group_with_entries_is_refused_unless_told(
    groups: Groups, capsys: pytest.CaptureFixture[str]
) -> None:
    append(groups.source, BODIES[:10])
    append(groups.destination, [b"before"])
    assert main(groups.export()) == 0

    assert main(groups.import_()) == 2
    assert "group g is not empty: it has the entries 0 to 1" in capsys.readouterr().err
    assert bodies(groups.destination) == [b"before"]

    assert main(groups.import_("--append")) == 0
    assert bodies(groups.destination) == [b"before", *BODIES[:10]]


def test_what_a_run_without_entries_has_recorded_does_not_admit_others(
    groups: Groups, capsys: pytest.CaptureFixture[str]
) -> None:
    append(groups.source, BODIES[:10])
    assert main(groups.export()) == 0
    raw = groups.file.read_bytes()
    command = [*COMMAND, *groups.import_()[:-1], "-"]
    cut = subprocess.run(command, input=raw[:60], capture_output=True, check=False, timeout=60)
    assert cut.returncode == 1
    append(groups.destination, [b"another client's"])

    assert main(groups.import_()) == 2

    assert "is not of this import: another client appends" in capsys.readouterr().err
    assert bodies(groups.destination) == [b"another client's"]
    assert main(groups.import_("--append")) == 0
    assert bodies(groups.destination) == [b"another client's", *BODIES[:10]]


def test_an_import_finds_what_another_client_appends_meanwhile(
    groups: Groups, tmp_path: Path
) -> None:
    append(groups.source, BODIES)
    assert main(groups.export()) == 0
    with subprocess.Popen([*COMMAND, *groups.import_()], stderr=subprocess.PIPE) as process:
        wait_for(lambda: saved(tmp_path) > 0, "some entries are saved")
        append(groups.destination, [b"another client's"])
        _, printed = process.communicate(timeout=60)

    assert (process.returncode, b"is not of this import" in printed) == (2, True)
    assert main(groups.import_()) == 2
    assert main(groups.import_("--append")) == 0
    found = bodies(groups.destination)
    found.remove(b"another client's")
    assert found == BODIES


def test_nothing_of_a_damaged_file_is_imported(
    groups: Groups, capsys: pytest.CaptureFixture[str]
) -> None:
    append(groups.source, BODIES[:1000])
    assert main(groups.export()) == 0
    raw = groups.file.read_bytes()
    groups.file.write_bytes(raw.replace(b"body 999 ", b"Body 999 ", 1))
    assert main(groups.import_()) == 1
    assert "where entry 1000 belongs, is damaged" in capsys.readouterr().err

    groups.file.write_bytes(raw[:-1000])
    assert main(groups.import_()) == 1
    assert "was cut after entry" in capsys.readouterr().err

    assert bodies(groups.destination) == []


def test_a_pipe_that_is_cut_is_continued(groups: Groups, tmp_path: Path) -> None:
    append(groups.source, BODIES[:1000])
    assert main(groups.export()) == 0
    raw = groups.file.read_bytes()
    command = [*COMMAND, *groups.import_()[:-1], "-"]

    cut = subprocess.run(command, input=raw[:-1000], capture_output=True, check=False, timeout=60)
    assert (cut.returncode, b"standard input was cut after entry" in cut.stderr) == (1, True)
    assert 0 < len(bodies(groups.destination)) < 1000

    whole = subprocess.run(command, input=raw, capture_output=True, check=False, timeout=60)
    assert whole.returncode == 0
    assert bodies(groups.destination) == BODIES[:1000]


def test_a_stream_that_follows_a_group_ends_at_the_mark(groups: Groups) -> None:
    append(groups.source, BODIES[:100])
    export = subprocess.Popen(
        [*COMMAND, *groups.export("--follow", "--until", "bye")[:-1], "-"], stdout=subprocess.PIPE
    )
    with export, subprocess.Popen([*COMMAND, *groups.import_()[:-1], "-"], stdin=export.stdout):
        wait_for(lambda: bodies(groups.destination) == BODIES[:100], "the first entries are there")
        append(groups.source, BODIES[100:200])
        wait_for(lambda: bodies(groups.destination) == BODIES[:200], "new entries arrive")
        append(groups.source, [b"bye"])
        assert export.wait(timeout=60) == 0

    assert bodies(groups.destination) == [*BODIES[:200], b"bye"]


def test_an_export_grows_with_its_group_and_so_does_the_import(groups: Groups) -> None:
    for begin in range(0, 400, 100):
        append(groups.source, BODIES[begin : begin + 100])
        assert main(groups.export()) == 0
        assert main(groups.import_()) == 0

    assert bodies(groups.destination) == BODIES[:400]


def test_the_folder_of_a_java_member_is_imported(groups: Groups, tmp_path: Path) -> None:
    extract(GOLDEN / "store-0.4.0.tar.xz", tmp_path)
    folder = tmp_path / "store-0.4.0" / "dledger-n0"
    assert main(["export", "--folder", str(folder), "--group=g0", str(groups.file)]) == 0

    assert main(groups.import_()) == 0

    manifest = json.loads((GOLDEN / "manifest.json").read_text())
    lengths = next(one for one in manifest if one["archive"] == "store-0.4.0.tar.xz")["entries"]
    assert [len(body) for body in bodies(groups.destination)] == [
        length for _, _, _, length, magic in lengths if magic == disk.NORMAL
    ]

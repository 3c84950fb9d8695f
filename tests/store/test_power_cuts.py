"""Real power cuts: acknowledged entries and votes survive them.

See `dledger_store_faults.power`. To run more: `pytest -m powercut --power-cuts 3000`.
"""

import os
import re
import subprocess
import sys

import pytest

from dledger_store_faults import power
from dledger_store_faults.tally import Tally
from tests.client.documented_blocks import ROOT, RUN_AS_ROOT, run_by_tests

pytestmark = pytest.mark.powercut

IN_A_NAMESPACE = ["unshare", "--mount", "--propagation", "private"]
FLAGS = {"nothing": [], "journal": ["--journal-flushed"]}
DOCUMENTED = run_by_tests(RUN_AS_ROOT)


@pytest.fixture(scope="module", params=list(power.MKFS))
def file_system(request: pytest.FixtureRequest) -> str:
    """A file system that this machine can create, mount and shut down."""
    name: str = request.param
    missing = power.missing_for(name)
    if missing:
        pytest.skip(f"no power cuts on {name}: {missing}")
    return name


def in_a_namespace(*command: str) -> str:
    """Run Python in a private mount namespace; return its output."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*IN_A_NAMESPACE, sys.executable, *command],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.stdout


def cut_power(file_system: str, *options: str) -> Tally:
    kind = ["-m", "dledger_store_faults", "power-cuts"]
    return Tally.from_json(in_a_namespace(*kind, "--file-system", file_system, *options))


@pytest.mark.parametrize("flushed", list(FLAGS))
def test_nothing_acknowledged_and_no_vote_is_lost(
    request: pytest.FixtureRequest, file_system: str, flushed: str
) -> None:
    count = request.config.getoption("--power-cuts") // 4

    tally = cut_power(file_system, "--count", str(count), *FLAGS[flushed])

    assert tally.faults == count
    assert not tally.violations
    assert tally.acknowledged > 100
    assert tally.lost_unacknowledged > 0


def test_the_same_cuts_lose_data_that_was_not_synced(file_system: str) -> None:
    """The control of the test above."""
    tally = cut_power(file_system, "--count", "30", "--without-sync")

    assert any("were acknowledged and are lost" in violation for violation in tally.violations)
    if file_system == "ext4":  # XFS often writes a renamed file without a sync
        assert any("was saved" in violation for violation in tally.violations)


SHUT_DOWN_WITHIN_THE_SYNC = """
import os, sys
from pathlib import Path
from dledger_node.errors import StoreError
from dledger_node.store.segments.segment import sync_folder
from dledger_store_faults import power

with power.mounted_image(sys.argv[1]) as at:
    folder = at / "folder"
    folder.mkdir()
    (folder / "before").write_bytes(b"x")
    sync_folder(folder)
    (folder / "before").rename(folder / "after")
    fsync = os.fsync

    def fsync_too_late(fd):
        power.shut_down(at, power.NOTHING_FLUSHED)
        return fsync(fd)

    os.fsync = fsync_too_late
    try:
        sync_folder(folder)
    except StoreError as error:
        print("refused:", error)
    else:
        print("believed")
"""


def test_a_folder_sync_fails_on_a_file_system_that_has_shut_down(
    file_system: str,
) -> None:
    """XFS then reports success for the fsync of a folder."""
    answer = in_a_namespace("-c", SHUT_DOWN_WITHIN_THE_SYNC, file_system)

    assert answer.startswith("refused:")


SHUT_DOWN_WITHIN_THE_FLUSH = """
import os, sys
from dledger_node.errors import StoreError
from dledger_node.store.log.log_store import LogStore
from dledger_store_faults import power

with power.mounted_image(sys.argv[1]) as at:
    store = LogStore.open(at / "store", segment_size_bytes=4096, index_segment_size_bytes=320)
    store.append_bodies([b"acknowledged?"], term=1)
    os.fdatasync = lambda fd: power.shut_down(at, power.NOTHING_FLUSHED)
    try:
        store.flush(store.flush_target())
    except StoreError as error:
        print("refused:", error)
    else:
        print("believed")
    try:
        store.close()
    except StoreError:
        pass
"""


def test_a_flush_fails_if_the_file_system_shuts_down_meanwhile(file_system: str) -> None:
    """Ext4 may report success, and read zeros after the next mount."""
    answer = in_a_namespace("-c", SHUT_DOWN_WITHIN_THE_FLUSH, file_system)

    assert answer.startswith("refused:")


@pytest.mark.parametrize("page", DOCUMENTED)
def test_documented_power_cuts_run_as_they_stand_but_for_their_number(page: str) -> None:
    script, replaced = re.subn("--count [0-9]+", "--count 4", DOCUMENTED[page])
    assert replaced == 1
    if missing := power.missing_for("xfs"):
        pytest.skip(f"no power cuts on xfs: {missing}")

    done = subprocess.run(
        ["bash", "-euc", script.replace("'python -m", f"'{sys.executable} -m")],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert Tally.from_json(done.stdout).faults == 4

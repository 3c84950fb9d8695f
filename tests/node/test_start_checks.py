"""Settings with which a member, or a broker, cannot start on its machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dledger_formats.settings import NodeSettings, SettingsError
from dledger_node.start_checks import check_start

BROKER = {"DLEDGER_BROKER_ADDRESSES": "n0-127.0.0.1:10911"}


def settings(folder: Path | str, http_port: int = 40912) -> NodeSettings:
    return NodeSettings(
        group="g",
        self_id="n0",
        peers={"n0": "127.0.0.1:40911"},
        store_base_dir=str(folder),
        http_port=http_port,
    )


def start(program: str, given: NodeSettings) -> tuple[int, str]:
    """Start a program, which must not run; return its exit code and what it says."""
    kept = {key: text for key, text in os.environ.items() if not key.startswith("DLEDGER_")}
    broker = BROKER if program == "dledger_broker" else {}
    done = subprocess.run(
        [sys.executable, "-m", program],
        capture_output=True, text=True, timeout=60, check=False,
        env=kept | given.to_environment() | broker,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize("program", ["dledger_node", "dledger_broker"])
def test_a_store_folder_in_a_file_is_a_wrong_setting(program: str) -> None:
    code, output = start(program, settings("/dev/null"))

    assert code == 2
    assert output == (
        f"{program.replace('_', '-')}: DLEDGER_STORE_BASE_DIR is '/dev/null', but /dev/null is no "
        "folder\n"
    )


@pytest.mark.parametrize("program", ["dledger_node", "dledger_broker"])
def test_one_port_for_members_and_pages_is_a_wrong_setting(program: str, tmp_path: Path) -> None:
    code, output = start(program, settings(tmp_path, 40911))

    assert code == 2
    assert output == (
        f"{program.replace('_', '-')}: DLEDGER_HTTP_PORT is 40911, which is also the port of n0 in "
        "DLEDGER_PEERS; a member needs two ports\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_a_members_folder_is_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "dledger-n0").write_bytes(b"")

    with pytest.raises(SettingsError, match="dledger-n0 is no folder"):
        check_start(settings(tmp_path))


def test_a_store_folder_need_not_exist_yet(tmp_path: Path) -> None:
    check_start(settings(tmp_path))
    check_start(settings(tmp_path / "a" / "b"))

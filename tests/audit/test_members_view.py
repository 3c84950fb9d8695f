"""The view `members` while some members do not answer. Without Spark."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dledger_logs import damage
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.write import write_log
from dledger_scan.log_rows import member_rows, members
from pyspark_dledger.copies import RefusedError

COUNT = 60
COLUMNS = {"member": "string", "index": "bigint"}


@pytest.fixture
def logs(tmp_path: Path) -> dict[str, Log]:
    entries = history(COUNT)
    return {name: write_log(tmp_path / name, entries, small_shape()) for name in ("n0", "n1", "n2")}


def test_a_member_that_does_not_answer_is_left_out_and_told(
    logs: dict[str, Log], caplog: pytest.LogCaptureFixture
) -> None:
    with members(logs, interrupts={"n0": lambda _: 0}) as path:
        rows = member_rows(path, COLUMNS)

    found = {(row["member"], row["index"]) for row in rows}
    assert found == {(name, k) for name in ("n1", "n2") for k in range(COUNT)}
    assert any(each.message.startswith("reading without a member: n0:") for each in caplog.records)


def test_it_is_refused_if_no_member_answers(logs: dict[str, Log]) -> None:
    hangs_up = dict.fromkeys(logs, lambda _: 0)

    with (
        members(logs, interrupts=hangs_up) as path,
        pytest.raises(RefusedError, match=r"no member .* n0: .*; n1: .*; n2: "),
    ):
        member_rows(path, COLUMNS)


def test_members_whose_manifests_are_given_are_not_asked(logs: dict[str, Log]) -> None:
    asked: list[str] = []
    given = {
        name: json.loads(manifest(log, name, peers=logs).to_json()) for name, log in logs.items()
    }

    with members(logs, interrupts=dict.fromkeys(logs, asked.append)) as path:
        rows = member_rows(path, COLUMNS, manifests=json.dumps(given))

    assert len(rows) == len(logs) * COUNT
    assert "/manifest" not in asked


def without_index(log: Log) -> None:
    for file in (log.root / "index").iterdir():
        file.unlink()


def zeroed_index(log: Log) -> None:
    for file in (log.root / "index").iterdir():
        file.write_bytes(bytes(file.stat().st_size))


def lost_entries(log: Log) -> None:
    """Leave absent runs that begin before what is asked for, and end in it."""
    without_index(log)
    damage.zero(log, 8, 11)
    damage.zero(log, 45, 50)


@pytest.mark.parametrize("level", ["full", "headers", "index"])
@pytest.mark.parametrize("spoil", [without_index, zeroed_index, lost_entries])
@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({"ranges": "[[10,12],[50,52]]"}, [10, 11, 12, 50, 51, 52]),
        ({"startingIndex": 48, "endingIndex": 53}, list(range(48, 54))),
    ],
)
def test_only_wanted_entries_are_read_also_without_a_right_index_file(
    logs: dict[str, Log],
    spoil: Callable[[Log], None],
    level: str,
    asked: dict[str, Any],
    wanted: list[int],
) -> None:
    log = logs["n0"]
    spoil(log)

    with members({"n0": log}) as path:
        rows = member_rows(path, COLUMNS, level=level, **asked)

    assert [row["index"] for row in rows] == wanted

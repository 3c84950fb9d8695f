"""Reads of a level: what is fetched, and that it says the same as a read of everything."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dledger_logs import damage
from dledger_logs.histories import history, small_shape, with_membership
from dledger_logs.layout import Log
from dledger_logs.write import Shape, write_log
from dledger_scan.log_rows import member_rows, member_tasks, members, rows_of
from pyspark_dledger.columns import READ
from pyspark_dledger.layout import Flag
from pyspark_dledger.options import FULL, HEADERS, INDEX, OptionError

COUNT = 300
ENTRIES = with_membership(history(COUNT), 150, ("n0", "n1"), ("n2",))
LARGE = with_membership(history(60, body_bytes=(150_000, 400_000)), 30, ("n0",))
LARGE_SHAPE = Shape(segment_bytes=4 << 20, index_segment_bytes=32 * 25)
LOG_COLUMNS = {
    INDEX: {"index": "bigint", "term": "bigint", "size": "int"},
    HEADERS: {"index": "bigint", "term": "bigint", "size": "int", "kind": "string",
              "channel": "int", "body_crc": "bigint"},
}  # fmt: skip
TYPES = {"member": "string", "kind": "string", **dict.fromkeys(
    ("segment", "at", "index", "term", "pos", "chain_crc", "body_crc"), "bigint")}  # fmt: skip


class Sent:
    """What members sent, by the first part of the path."""

    def __init__(self) -> None:
        self._sent: dict[str, int] = {}

    def __call__(self, path: str, count: int) -> None:
        folder = path.rpartition("/")[0]
        self._sent[folder] = self._sent.get(folder, 0) + count

    def __getitem__(self, folder: str) -> int:
        return self._sent.get(f"/segments/{folder}", 0)


@contextmanager
def group(folder: Path, *, large: bool = False) -> Iterator[tuple[str, dict[str, Log], Sent]]:
    entries, shape = (LARGE, LARGE_SHAPE) if large else (ENTRIES, small_shape())
    logs = {name: write_log(folder / name, entries, shape) for name in ("n0", "n1", "n2")}
    sent = Sent()
    with members(logs, sent=sent) as path:
        yield path, logs, sent


def all_columns(level: str) -> dict[str, str]:
    return {name: TYPES.get(name, "int") for name in READ[level]}


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("level", [INDEX, HEADERS])
def test_a_level_says_of_the_log_what_a_full_read_says(
    tmp_path: Path, level: str, large: bool
) -> None:
    with group(tmp_path, large=large) as (path, _, _):
        columns = LOG_COLUMNS[level]

        assert rows_of(path, columns, level=level) == rows_of(path, columns)
        assert rows_of(path, columns, level=level, ranges="[[3, 5], [40, 44]]") == [
            row for row in rows_of(path, columns) if row["index"] in (3, 4, 5, *range(40, 45))
        ]


@pytest.mark.parametrize("view", ["log", "members"])
def test_a_read_of_index_and_term_fetches_index_files_alone(tmp_path: Path, view: str) -> None:
    with group(tmp_path) as (path, _, sent):
        columns = {"index": "bigint", "term": "bigint"}
        read = rows_of if view == "log" else member_rows
        rows = read(path, columns, level=INDEX)

    assert len(rows) == COUNT * (1 if view == "log" else 3)
    assert sent["data"] == 0
    assert 0 < sent["index"] <= 2 * 32 * len(rows)


@pytest.mark.parametrize("view", ["log", "members"])
def test_a_read_of_headers_skips_large_bodies(tmp_path: Path, view: str) -> None:
    with group(tmp_path, large=True) as (path, _, sent):
        read = rows_of if view == "log" else member_rows
        rows = read(path, LOG_COLUMNS[HEADERS], level=HEADERS)

    assert len(rows) == len(LARGE) * (1 if view == "log" else 3)
    bodies = sum(len(entry.body) for entry in LARGE) * (1 if view == "log" else 3)
    assert sent["data"] < bodies / 20


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_headers_of_damaged_members_have_the_flags_of_a_full_read_but_for_bodies(
    seed: int, large: bool, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    with group(tmp_path, large=large) as (path, logs, _):
        spoil(rng, logs)
        full = member_rows(path, all_columns(HEADERS))
        headers = member_rows(path, all_columns(HEADERS), level=HEADERS)

    assert [without_bodies(row) for row in headers] == [without_bodies(row) for row in full]
    assert all(not row["flags"] & Flag.BAD_BODY_CRC for row in headers)


def spoil(rng: random.Random, logs: dict[str, Log]) -> None:
    """Damage headers, bodies and index units at random."""
    for log in logs.values():
        for index in rng.sample(range(1, len(log.places)), 12):
            place = log.place(index)
            match rng.randrange(4):
                case 0 if place.size > 48:
                    damage.flip_body(log, index, rng.randrange(place.size - 48))
                case 1:
                    damage.zero(log, index, index)
                case 2:
                    damage.flip_unit(log, index, rng.randrange(32))
                case _:
                    damage.flip_header(log, index, rng.choice(["term", "size", "index"]), 1)


def without_bodies(row: dict[str, Any]) -> dict[str, Any]:
    of_bodies = Flag.BAD_BODY_CRC | Flag.BAD_MEMBERSHIP
    return row | {"flags": row["flags"] & ~int(of_bodies)}


@pytest.mark.parametrize("level", [INDEX, HEADERS])
@pytest.mark.parametrize("seed", range(6))
def test_damage_that_leaves_one_intact_copy_changes_no_level_of_the_log(
    seed: int, level: str, tmp_path: Path
) -> None:
    """At the level index, a wrong term shows only where terms go back, and a wrong size of the last
    entry of a segment does not show.
    """
    rng = random.Random(seed)
    with group(tmp_path) as (path, logs, _):
        log = logs["n0"]
        last = {log.places_in(segment)[-1].index for segment in log.segments}
        for index in rng.sample(sorted({*range(1, COUNT)} - last), 40):
            for log in rng.sample(list(logs.values()), rng.randint(1, 2)):
                if level == HEADERS:
                    damage.flip_header(log, index, rng.choice(["term", "size", "index"]), 1)
                else:
                    damage.flip_unit(log, index, rng.choice([11, 15, 23]))
        found = rows_of(path, LOG_COLUMNS[level], level=level)

    with group(tmp_path / "sound") as (path, _, _):
        assert found == rows_of(path, LOG_COLUMNS[level])


def test_index_units_that_contradict_their_neighbors_are_flagged(tmp_path: Path) -> None:
    with group(tmp_path) as (path, logs, _):
        damage.flip_unit(logs["n1"], 77, 15)  # its size
        rows = member_rows(path, all_columns(INDEX), level=INDEX)

    flagged = {(row["member"], row["index"]): row["flags"] for row in rows if row["flags"]}
    assert flagged.keys() == {("n1", 77)}
    assert set(flagged.values()) == {Flag.INDEX_FILE_DIFFERS}


def test_headers_are_read_where_no_member_has_index_files(tmp_path: Path) -> None:
    with group(tmp_path) as (path, logs, _):
        full = rows_of(path, LOG_COLUMNS[INDEX])
        for log in logs.values():
            damage.remove_index(log)

        assert rows_of(path, LOG_COLUMNS[INDEX], level=INDEX) == full


@pytest.mark.parametrize("view", ["log", "members"])
@pytest.mark.parametrize(
    ("level", "column", "kind"),
    [(INDEX, "kind", "string"), (INDEX, "body", "binary"), (HEADERS, "body", "binary"),
     (HEADERS, "crc", "bigint")],
)  # fmt: skip
def test_a_column_that_needs_another_level_is_refused(
    tmp_path: Path, view: str, level: str, column: str, kind: str
) -> None:
    with group(tmp_path) as (path, _, _):
        read = rows_of if view == "log" else member_rows
        with pytest.raises(ValueError, match=f"column {column} is not read with level={level}"):
            read(path, {column: kind}, level=level)


def test_tasks_of_members_have_several_small_segments(tmp_path: Path) -> None:
    with group(tmp_path) as (path, logs, _):
        segments = len(logs["n0"].segments)

        assert len(member_tasks(path, taskBytes=1)) == 3 * segments
        assert len(member_tasks(path)) == 3
        assert len(member_tasks(path, taskBytes=3 * 4096)) == 3 * -(-segments // 3)


@pytest.mark.parametrize("task_bytes", [32, 320, 3232, 1 << 28])
def test_tasks_of_index_files_have_bounded_bytes(tmp_path: Path, task_bytes: int) -> None:
    with group(tmp_path) as (path, _, _):
        columns = LOG_COLUMNS[INDEX]

        assert rows_of(path, columns, level=INDEX, taskBytes=task_bytes) == rows_of(path, columns)


def test_digests_need_a_full_read(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=f"needs level={FULL}"):
        member_rows("n0=http://h:1", {}, rows="digests", level=INDEX)

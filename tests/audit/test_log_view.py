"""The view `log`: each committed entry once, from a member that has it intact. Without Spark."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dledger_formats.http.status import Manifest, StorageState
from dledger_formats.log import disk
from dledger_logs import damage
from dledger_logs.histories import history, small_shape, with_membership
from dledger_logs.layout import Log, manifest
from dledger_logs.write import Entry, write_log
from dledger_scan.log_rows import COLUMNS, members, planned, rows_of
from pyspark_dledger import log_view
from pyspark_dledger.copies import RefusedError
from pyspark_dledger.intact import NoIntactCopyError
from pyspark_dledger.log_view import LogView
from pyspark_dledger.options import parse

COUNT = 400
ENTRIES = with_membership(history(COUNT), 250, ("n0", "n1"), ("n2",))
SMALL = small_shape()


def group(folder: Path, names: str = "n0 n1 n2") -> dict[str, Log]:
    return {name: write_log(folder / name, ENTRIES, SMALL) for name in names.split()}


def expected(first: int = 0, last: int = COUNT - 1) -> list[dict[str, Any]]:
    return [
        {"index": index, "term": entry.term, "kind": kind_of(index, entry), "body": entry.body}
        for index, entry in enumerate(ENTRIES)
        if first <= index <= last
    ]


def kind_of(index: int, entry: Entry) -> str:
    if index == 250:
        return "membership"
    return "noop" if entry.magic == disk.NOOP else "normal"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with members(group(tmp_path_factory.mktemp("sound"))) as path:
        yield path


@pytest.mark.parametrize("task_bytes", [1, 3000, 5000, 1 << 28])
def test_each_entry_is_read_once_whatever_the_size_of_tasks(sound: str, task_bytes: int) -> None:
    assert rows_of(sound, taskBytes=task_bytes) == expected()


def test_tasks_stay_within_their_bytes_and_leave_out_no_entry(sound: str, tmp_path: Path) -> None:
    """A task may be larger only if it is one entry."""
    log = group(tmp_path, "n0")["n0"]
    for task_bytes in (100, 1000, 3000, 10_000):
        tasks = planned(sound, taskBytes=task_bytes)
        pieces = [piece for task in tasks for piece in task.pieces]

        spans = [(piece.first, piece.last) for piece in pieces]
        assert [index for low, high in spans for index in range(low, high + 1)] == [*range(COUNT)]
        for task in tasks:
            held = [k for each in task.pieces for k in range(each.first, each.last + 1)]
            assert len(held) == 1 or sum(log.place(k).size for k in held) <= task_bytes
        assert len(tasks) <= 4 * sum(place.size for place in log.places) / task_bytes + 1


def test_neighboring_tasks_prefer_different_members_and_the_leader_comes_last(
    tmp_path: Path,
) -> None:
    logs = group(tmp_path)
    served = manifest(logs["n0"], "n0", peers=logs)
    leads = replace(served, status=replace(served.status, leader_id="n0"))

    with members(logs, {"n0": leads}) as path:
        orders = [[copy.member for copy in task.copies] for task in planned(path, taskBytes=4000)]

    assert orders[:2] == [["n1", "n2", "n0"], ["n2", "n1", "n0"]]
    assert {order[-1] for order in orders} == {"n0"}


def test_a_task_carries_only_what_its_own_entries_need(sound: str) -> None:
    whole, *_ = planned(sound)
    parts = planned(sound, taskBytes=4000)

    assert max(len(task.copies[0].manifest.data) for task in parts) <= 4
    assert max(len(task.copies[0].manifest.index) for task in parts) <= 5
    assert len(whole.copies[0].manifest.data) > 6


def test_a_member_that_is_down_is_left_out(tmp_path: Path) -> None:
    logs = group(tmp_path)

    with members(logs, interrupts={"n0": lambda _: 0}) as path:
        assert rows_of(path, taskBytes=4000) == expected()


def test_a_member_that_dies_while_it_is_read_is_replaced_by_the_others(tmp_path: Path) -> None:
    logs = group(tmp_path)
    asked: list[str] = []

    def dies(path: str) -> int | None:
        asked.append(path)
        return 0 if len(asked) > 8 else None

    with members(logs, interrupts={"n0": dies}) as path:
        assert rows_of(path) == expected()
    assert len(asked) > 8


@pytest.mark.parametrize("seed", range(12))
def test_damage_that_leaves_one_intact_copy_of_each_entry_changes_nothing(
    seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    logs = group(tmp_path)
    for index in sorted(rng.sample(range(1, COUNT), 40)):
        for log in rng.sample(list(logs.values()), rng.randint(1, 2)):
            place = log.place(index)
            match rng.randrange(4):
                case 0 if place.size > disk.ENTRY_HEADER_SIZE:
                    damage.flip_body(log, index, rng.randrange(place.size - disk.ENTRY_HEADER_SIZE))
                case 1:
                    damage.zero(log, index, index)
                case 2:
                    damage.flip_unit(log, index, rng.randrange(32))
                case _:
                    damage.flip_header(log, index, rng.choice(["term", "size", "index"]), 1)

    with members(logs) as path:
        found = rows_of(path, taskBytes=rng.choice([500, 4000, 1 << 28]))

    assert found == expected()


def test_an_entry_that_no_member_has_intact_is_refused_by_its_index(tmp_path: Path) -> None:
    logs = group(tmp_path)
    for log in logs.values():
        damage.flip_body(log, 123)

    with members(logs) as path:
        with pytest.raises(NoIntactCopyError, match="no copy has the entries 123 to 123 intact"):
            rows_of(path)
        assert rows_of(path, ranges="[[0, 122], [124, 399]]") == [
            row for row in expected() if row["index"] != 123
        ]


def test_the_log_ends_where_any_member_knows_it_is_committed(tmp_path: Path) -> None:
    logs = group(tmp_path)
    says = {
        name: manifest(logs[name], name, peers=logs, committed_index=last)
        for name, last in {"n0": 100, "n1": 322, "n2": 5}.items()
    }

    with members(logs, says) as path:
        assert rows_of(path, taskBytes=2000) == expected(last=322)


def test_the_front_is_read_from_whom_still_has_it(tmp_path: Path) -> None:
    logs = group(tmp_path)
    logs["n0"], logs["n2"] = damage.remove_front(logs["n0"], 2), damage.remove_front(logs["n2"], 4)

    with members(logs) as path:
        assert rows_of(path, taskBytes=2000) == expected()


def test_entries_that_all_have_removed_are_an_error_unless_they_may_be_skipped(
    tmp_path: Path,
) -> None:
    logs = {name: damage.remove_front(log, 2) for name, log in group(tmp_path).items()}
    begin = logs["n0"].first_index

    with members(logs) as path:
        assert rows_of(path) == expected(first=begin)
        assert rows_of(path, startingIndex=begin) == expected(first=begin)
        with pytest.raises(RefusedError, match=f"startingIndex={begin}"):
            rows_of(path, startingIndex=begin - 1)
        with pytest.raises(RefusedError, match="onRemoved=skip"):
            rows_of(path, ranges=f"[[3, 4], [{begin}, {begin + 5}]]")
        assert rows_of(path, startingIndex=3, onRemoved="skip") == expected(first=begin)


@pytest.mark.parametrize("given", [{}, {"onRemoved": "skip"}])
def test_a_front_that_a_silent_member_may_have_is_not_taken_for_removed(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    logs = group(tmp_path)
    logs["n1"], logs["n2"] = damage.remove_front(logs["n1"], 2), damage.remove_front(logs["n2"], 3)

    with members(logs, interrupts={"n0": lambda _: 0}) as path:
        with pytest.raises(RefusedError, match=r"may have those from 3 on \(n0: "):
            rows_of(path, startingIndex=3, **given)
        begin = logs["n1"].first_index
        assert rows_of(path) == rows_of(path, startingIndex=begin) == expected(first=begin)


@pytest.mark.parametrize(
    "said",
    [
        {"committed_index": -1},
        {"committed_index": -1, "ready": False, "storage": StorageState.HEALING},
    ],
    ids=["it does not know its commit", "it heals"],
)
def test_a_member_that_does_not_tell_its_entries_may_have_the_front(
    tmp_path: Path, said: dict[str, Any]
) -> None:
    logs = group(tmp_path)
    logs["n1"], logs["n2"] = damage.remove_front(logs["n1"], 2), damage.remove_front(logs["n2"], 3)
    whole = manifest(logs["n0"], "n0", peers=logs)
    data = [] if "storage" in said else whole.data
    untold = replace(whole, status=replace(whole.status, **said), data=data)

    with (
        members(logs, {"n0": untold}) as path,
        pytest.raises(RefusedError, match=r"may have those from 3 on \(n0: "),
    ):
        rows_of(path, startingIndex=3, onRemoved="skip")


class Shrinking:
    """Members whose retention removes segments while they are read."""

    def __init__(self, logs: dict[str, Log], counts: dict[str, int], after: int) -> None:
        """`counts` are the segments to remove, once the members were asked `after` times."""
        self.logs, self._counts, self._left = logs, counts, after
        self._lock = threading.Lock()

    def says(self, member: str) -> Manifest:
        return manifest(self.logs[member], member, peers=self.logs)

    def asked(self, path: str) -> None:
        with self._lock:
            self._left -= path != "/manifest"
            if self._left == 0:
                for member, count in self._counts.items():
                    self.logs[member] = damage.remove_front(self.logs[member], count)

    @property
    def first_index(self) -> int:
        return min(log.first_index for log in self.logs.values())


@contextmanager
def serving(shrinking: Shrinking) -> Iterator[str]:
    names = list(shrinking.logs)
    says = {member: partial(shrinking.says, member) for member in names}
    with members(shrinking.logs, says, dict.fromkeys(names, shrinking.asked)) as path:
        yield path


@pytest.mark.parametrize("after", [1, 3, 6])
@pytest.mark.parametrize("counts", [(2, 2, 2), (1, 3, 2)])
def test_entries_that_are_removed_while_a_query_runs_are_left_out_or_an_error(
    tmp_path: Path, counts: tuple[int, int, int], after: int
) -> None:
    """Members are asked after planning, so the query has planned to read them."""
    for number, given in enumerate(({}, {"onRemoved": "skip", "startingIndex": 0})):
        logs = group(tmp_path / str(number))
        removal = dict(zip(logs, counts, strict=True))
        group_of = Shrinking(logs, removal, after)
        with serving(group_of) as path:
            rows = rows_of(path, taskBytes=1500, **given)
        assert [row["index"] for row in rows][-1] == COUNT - 1
        held = [row for row in rows if row["index"] >= group_of.first_index]
        assert held == expected(first=group_of.first_index)

    group_of = Shrinking(group(tmp_path / "error"), removal, after)
    with serving(group_of) as path, pytest.raises(RefusedError, match="startingIndex="):
        rows_of(path, taskBytes=1 << 20, startingIndex=0)


@pytest.mark.parametrize("given", [{}, {"onRemoved": "skip", "startingIndex": 0}])
def test_entries_of_members_that_are_only_silent_are_not_left_out(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    """The third member has removed them, and the others answer no more."""
    logs = group(tmp_path)
    logs["n2"] = damage.remove_front(logs["n2"], 2)
    asked: list[str] = []

    def dies(path: str) -> int | None:
        asked.append(path)
        return 0 if len(asked) > 6 else None

    with (
        members(logs, interrupts={"n0": dies, "n1": dies}) as path,
        pytest.raises(NoIntactCopyError, match="no copy has the entries"),
    ):
        rows_of(path, **given)


class Away:
    """Members that are all away for some requests for their manifests."""

    def __init__(self, after: int, requests: int) -> None:
        """They are away once they were asked `after` times."""
        self._after, self.left = after, requests
        self._lock = threading.Lock()

    def asked(self, path: str) -> int | None:
        with self._lock:
            self._after -= 1
            if self._after >= 0 or self.left <= 0:
                return None
            self.left -= path == "/manifest"
            return 0


def test_a_task_goes_on_once_members_that_were_all_away_are_back(tmp_path: Path) -> None:
    """It failed at once, although a member that does not know its commit is waited for."""
    logs = group(tmp_path)
    away = Away(after=12, requests=8)

    with members(logs, interrupts=dict.fromkeys(logs, away.asked)) as path:
        assert rows_of(path, taskBytes=2000) == expected()
    assert away.left <= 0


def test_a_task_waits_for_members_that_are_all_away_only_for_some_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_view, "COMMIT_SECONDS", 0.2)
    logs = group(tmp_path)
    away = Away(after=12, requests=1 << 30)

    with (
        members(logs, interrupts=dict.fromkeys(logs, away.asked)) as path,
        pytest.raises(NoIntactCopyError, match="no copy has the entries"),
    ):
        rows_of(path, taskBytes=2000)


def test_entries_of_a_member_that_forgets_its_commit_are_not_left_out(tmp_path: Path) -> None:
    """It alone has the front, restarts behind the planning, and learns its commit then."""
    logs = group(tmp_path)
    logs["n1"], logs["n2"] = damage.remove_front(logs["n1"], 2), damage.remove_front(logs["n2"], 3)
    commits = [COUNT - 1]  # what it says, the next one last

    def says() -> Manifest:
        last = commits.pop() if len(commits) > 1 else commits[0]
        return manifest(logs["n0"], "n0", peers=logs, committed_index=last)

    def is_away(path: str) -> int | None:
        return 0 if len(commits) == 3 and path != "/manifest" else None

    with members(logs, {"n0": says}, {"n0": is_away}) as path:
        view, tasks = LogView(COLUMNS, parse({"path": path})), planned(path)
        commits += [-1, -1]
        rows = [row for task in tasks for batch in view.read(task) for row in batch.to_pylist()]

    assert rows == expected()


def test_an_empty_log_and_a_range_without_entries_have_no_rows(tmp_path: Path) -> None:
    with members({"n0": write_log(tmp_path / "n0", [], SMALL)}) as path:
        assert rows_of(path) == []
        assert rows_of(path, startingIndex=0) == []
    with members({"n0": write_log(tmp_path / "n1", ENTRIES, SMALL)}) as path:
        assert rows_of(path, startingIndex=COUNT) == []


def test_members_of_two_groups_are_refused(tmp_path: Path) -> None:
    logs = group(tmp_path, "n0 n1")
    other = manifest(logs["n1"], "n1", group="other")

    with (
        members(logs, {"n1": other}) as path,
        pytest.raises(RefusedError, match="different groups"),
    ):
        rows_of(path)


def test_a_url_of_another_member_is_refused(tmp_path: Path) -> None:
    with (
        members(group(tmp_path, "n0 n1")) as path,
        pytest.raises(RefusedError, match="is the member n0, not n9"),
    ):
        rows_of(path.replace("n0=", "n9="))


def test_no_answer_at_all_is_refused_with_each_reason(tmp_path: Path) -> None:
    refuses = {name: lambda _: 0 for name in ("n0", "n1")}

    with (
        members(group(tmp_path, "n0 n1"), interrupts=refuses) as path,
        pytest.raises(RefusedError, match=r"no member .* n0: .*; n1: "),
    ):
        rows_of(path)

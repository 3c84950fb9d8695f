"""Batches of a streaming query, without Spark: offsets, bounds, removed fronts, lost commits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dledger_formats.http.status import Manifest
from dledger_logs import damage
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import manifest
from dledger_logs.serve import Interrupt
from dledger_logs.write import write_log
from dledger_scan.log_rows import members
from pyspark_dledger.copies import RefusedError
from pyspark_dledger.log_view import LogView
from pyspark_dledger.options import OptionError, parse
from pyspark_dledger.stream import COMMIT_SECONDS, LogStream, Offset

COUNT = 300
ENTRIES = history(COUNT)
COLUMNS = {"index": "bigint", "body": "binary"}


class Members:
    """Members of a group whose commit and front change, and the time that passes meanwhile."""

    def __init__(self, folder: Path, committed_index: int = COUNT - 1) -> None:
        self.logs = {
            name: write_log(folder / name, ENTRIES, small_shape()) for name in ("n0", "n1", "n2")
        }
        self.committed = dict.fromkeys(self.logs, committed_index)
        self.silent: set[str] = set()
        self.identity = "A"
        self.now = 0.0
        self.when_waiting: Callable[[], None] = lambda: None

    def says(self, member: str) -> Manifest:
        served = manifest(
            self.logs[member], member, peers=self.logs, committed_index=self.committed[member]
        )
        return replace(served, status=replace(served.status, group_identity=self.identity))

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.001)
        self.when_waiting()

    def stream(self, path: str, **given: Any) -> "Query":
        options = parse({"path": path, **{name: str(value) for name, value in given.items()}})
        return Query(
            LogStream(options, clock=lambda: self.now, sleep=self.sleep),
            LogView(COLUMNS, options),
        )


class Query:
    """Runs batches as Spark does."""

    def __init__(self, stream: LogStream, view: LogView) -> None:
        self.stream, self.view = stream, view

    def rows(self, start: Offset, end: Offset) -> list[int]:
        tasks = self.stream.tasks(start, end)
        batches = [batch for task in tasks for batch in self.view.read(task)]
        for batch in batches:
            for row in batch.to_pylist():
                assert row["body"] == ENTRIES[row["index"]].body
        return [index for batch in batches for index in batch["index"].to_pylist()]

    def batches(self, start: Offset | None = None) -> Iterator[list[int]]:
        """Yield the batches up to the first empty one."""
        at = self.stream.first() if start is None else start
        while (end := self.stream.latest(at, is_bounded=True)) != at:
            yield self.rows(at, end)
            at = end


@contextmanager
def serving(group: Members) -> Iterator[str]:
    says = {member: partial(group.says, member) for member in group.logs}
    hangs_up: dict[str, Interrupt] = {
        member: lambda _, member=member: 0 if member in group.silent else None  # type: ignore[misc]
        for member in group.logs
    }
    with members(group.logs, says, hangs_up) as path:
        yield path


@pytest.fixture
def group(tmp_path: Path) -> Members:
    return Members(tmp_path)


@pytest.mark.parametrize(
    ("first", "entries_max", "bytes_max"),
    [(0, 64, 1 << 30), (0, 1000, 5000), (0, 50, 3000), (280, 1, 1 << 30), (280, 1000, 1)],
)
def test_batches_have_every_entry_once_and_stay_within_their_bounds(
    group: Members, first: int, entries_max: int, bytes_max: int
) -> None:
    with serving(group) as path:
        query = group.stream(
            path, startingIndex=first, maxEntriesPerBatch=entries_max, maxBytesPerBatch=bytes_max
        )
        batches = list(query.batches())

    assert [index for batch in batches for index in batch] == list(range(first, COUNT))
    log = group.logs["n0"]
    for batch in batches:
        assert len(batch) <= entries_max
        assert len(batch) == 1 or sum(log.place(index).size for index in batch) <= bytes_max


def test_a_batch_of_everything_has_no_bounds(group: Members) -> None:
    with serving(group) as path:
        query = group.stream(path, maxEntriesPerBatch=1)
        start = query.stream.first()

        assert query.stream.latest(start, is_bounded=False)["index"] == COUNT


def test_a_query_follows_the_commit_and_ends_where_it_is_told(group: Members) -> None:
    group.committed = dict.fromkeys(group.logs, 99)
    with serving(group) as path:
        query = group.stream(path, startingIndex=10)
        start = query.stream.first()
        first = query.stream.latest(start, is_bounded=True)
        group.committed["n1"] = 150
        query.stream.stop_here()
        group.committed["n1"] = 200
        second = query.stream.latest(first, is_bounded=True)

        assert (start["index"], first["index"], second["index"]) == (10, 100, 151)
        assert query.rows(first, second) == list(range(100, 151))
        assert query.stream.latest(second, is_bounded=True) == second
        assert query.stream.newest == {"index": 201, "group": "A"}


def test_an_ending_index_is_the_last_one_that_a_query_reads(group: Members) -> None:
    with serving(group) as path:
        query = group.stream(path, startingIndex=5, endingIndex=20, maxEntriesPerBatch=10)

        assert [index for batch in query.batches() for index in batch] == list(range(5, 21))


def test_a_lower_commit_after_a_leader_died_gives_no_entry_twice(group: Members) -> None:
    with serving(group) as path:
        query = group.stream(path)
        start = query.stream.first()
        end = query.stream.latest(start, is_bounded=True)
        group.committed = dict.fromkeys(group.logs, 50)

        assert query.stream.latest(end, is_bounded=True) == end


def test_a_batch_waits_until_a_member_knows_again_that_it_is_committed(group: Members) -> None:
    with serving(group) as path:
        query = group.stream(path)
        start = query.stream.first()
        end = query.stream.latest(start, is_bounded=True)
        group.committed = dict.fromkeys(group.logs, 50)

        def elect() -> None:
            if group.now > COMMIT_SECONDS / 2:
                group.committed["n2"] = COUNT - 1

        group.when_waiting = elect
        assert query.rows(start, end) == list(range(COUNT))
        assert group.now > COMMIT_SECONDS / 2


def test_a_batch_whose_entries_nobody_knows_to_be_committed_is_an_error_in_the_end(
    group: Members,
) -> None:
    with serving(group) as path:
        query = group.stream(path)
        start = query.stream.first()
        end = query.stream.latest(start, is_bounded=True)
        group.committed = dict.fromkeys(group.logs, 50)

        with pytest.raises(RefusedError, match="no member knows more than 50"):
            query.rows(start, end)
        assert COMMIT_SECONDS <= group.now < COMMIT_SECONDS + 1


def test_a_task_waits_for_members_that_learn_the_commit_after_the_one_that_knew_it_is_gone(
    group: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(group) as path:
        query = group.stream(path)
        start = query.stream.first()
        group.committed |= {"n0": 50, "n1": 50}
        end = query.stream.latest(start, is_bounded=True)
        tasks = query.stream.tasks(start, end)
        for name in group.logs["n2"].segments:  # the only one that knows the commit loses its log
            group.logs["n2"].data_path(name).unlink()
        waits: list[float] = []

        def learn(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 3:
                group.committed |= {"n0": COUNT - 1, "n1": COUNT - 1}

        monkeypatch.setattr("pyspark_dledger.log_view.time.sleep", learn)
        batches = [batch for task in tasks for batch in query.view.read(task)]

    found = [index for batch in batches for index in batch["index"].to_pylist()]
    assert found == list(range(COUNT))
    assert len(waits) >= 3


def test_members_without_new_entries_are_asked_four_times_a_second(group: Members) -> None:
    with serving(group) as path:
        query = group.stream(path)
        end = {"index": COUNT, "group": "A"}
        for _ in range(41):
            assert query.stream.latest(end, is_bounded=True) == end

    assert group.now == pytest.approx(10, abs=0.1)


def test_a_member_that_is_away_is_told_once(
    group: Members, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(group) as path:
        query = group.stream(f"{path},n9=http://127.0.0.1:1")
        start = query.stream.first()
        for _ in range(3):
            query.stream.latest(start, is_bounded=True)

    assert [each.message[:30] for each in caplog.records] == ["reading without a member: n9: "]


def test_a_front_that_was_removed_before_it_was_read_is_an_error_unless_it_may_be_skipped(
    group: Members,
) -> None:
    with serving(group) as path:
        query, skips = group.stream(path), group.stream(path, onRemoved="skip")
        start = query.stream.first()
        end = query.stream.latest(start, is_bounded=True)
        group.logs = {name: damage.remove_front(log, 2) for name, log in group.logs.items()}
        begin = group.logs["n0"].first_index

        with pytest.raises(RefusedError, match=f"all before {begin} meanwhile"):
            query.stream.latest(start, is_bounded=True)
        with pytest.raises(RefusedError, match="onRemoved=skip"):
            query.stream.tasks(start, end)
        assert skips.rows(start, end) == list(range(begin, COUNT))
        assert query.rows({"index": begin, "group": "A"}, end) == list(range(begin, COUNT))


def test_a_front_that_is_removed_while_a_batch_is_read_is_an_error_unless_it_may_be_skipped(
    group: Members,
) -> None:
    with serving(group) as path:
        query, skips = group.stream(path), group.stream(path, onRemoved="skip")
        start = query.stream.first()
        end = query.stream.latest(start, is_bounded=True)
        tasks = query.stream.tasks(start, end)
        group.logs = {name: damage.remove_front(log, 2) for name, log in group.logs.items()}
        begin = group.logs["n0"].first_index

        with pytest.raises(RefusedError, match="retention has removed them"):
            [batch for task in tasks for batch in query.view.read(task)]
        batches = [batch for task in tasks for batch in skips.view.read(task)]

    assert [k for batch in batches for k in batch["index"].to_pylist()] == list(range(begin, COUNT))


@pytest.mark.parametrize("given", [{}, {"onRemoved": "skip"}])
def test_a_batch_waits_for_a_silent_member_that_alone_may_have_its_front(
    group: Members, given: dict[str, str]
) -> None:
    for name in ("n1", "n2"):
        group.logs[name] = damage.remove_front(group.logs[name], 2)
    with serving(group) as path:
        query = group.stream(path, **given)
        start = query.stream.first()
        group.silent.add("n0")
        group.when_waiting = group.silent.clear
        end = query.stream.latest(start, is_bounded=True)
        group.silent.add("n0")

        assert query.rows(start, end) == list(range(COUNT))


@pytest.mark.parametrize("given", [{}, {"onRemoved": "skip"}])
def test_a_front_that_a_silent_member_may_have_is_never_left_out(
    group: Members, given: dict[str, str]
) -> None:
    for name in ("n1", "n2"):
        group.logs[name] = damage.remove_front(group.logs[name], 2)
    with serving(group) as path:
        query = group.stream(path, **given)
        start = query.stream.first()
        end = query.stream.latest(start, is_bounded=True)
        group.silent.add("n0")

        def wait() -> None:
            group.now += COMMIT_SECONDS / 3

        group.when_waiting = wait
        for ask in (
            query.stream.first,
            lambda: query.stream.latest(start, is_bounded=True),
            lambda: query.stream.tasks(start, end),
        ):
            group.now = 0.0
            with pytest.raises(RefusedError, match=r"may have those from 0 on \(n0: ") as told:
                ask()
            assert group.now >= COMMIT_SECONDS
            assert f"with startingIndex={group.logs['n1'].first_index}" in str(told.value)


def test_what_a_batch_leaves_out_is_told_once(
    group: Members, caplog: pytest.LogCaptureFixture
) -> None:
    group.logs = {name: damage.remove_front(log, 2) for name, log in group.logs.items()}
    begin = group.logs["n0"].first_index
    with serving(group) as path:
        query = group.stream(path, startingIndex=3, onRemoved="skip")

        assert list(query.batches()) == [list(range(begin, COUNT))]

    logged = [each.message for each in caplog.records]
    assert logged == [f"leaving out the entries 3 to {begin - 1}: removed before they were read"]


@pytest.mark.parametrize("given", [{"endingIndex": 20}, {}])
def test_a_query_whose_last_entries_were_removed_reads_none_after_them(
    group: Members, given: dict[str, int]
) -> None:
    with serving(group) as path:
        query = group.stream(path, onRemoved="skip", **given)
        group.committed = dict.fromkeys(group.logs, 20)
        query.stream.stop_here()
        group.committed = dict.fromkeys(group.logs, COUNT - 1)
        group.logs = {name: damage.remove_front(log, 2) for name, log in group.logs.items()}
        assert list(query.batches({"index": 5, "group": "A"})) == [[]]


def test_a_query_that_has_read_all_waits_whatever_is_removed_behind_its_end(group: Members) -> None:
    logs = {name: damage.remove_front(log, 2) for name, log in group.logs.items() if name != "n0"}
    group.logs |= logs
    group.silent = {"n0"}
    with serving(group) as path:
        start = {"index": 21, "group": "A"}
        query = group.stream(path, endingIndex=20)
        assert query.stream.latest(start, is_bounded=True) == start
    assert group.now == 0.0


def test_a_query_without_a_first_index_begins_where_the_log_does(group: Members) -> None:
    group.logs = {name: damage.remove_front(log, 2) for name, log in group.logs.items()}
    with serving(group) as path:
        assert group.stream(path).stream.first()["index"] == group.logs["n0"].first_index


def test_a_checkpoint_of_another_group_is_refused(group: Members) -> None:
    with serving(group) as path:
        query = group.stream(path)
        start = query.stream.first()
        group.identity = "B"

        with pytest.raises(RefusedError, match="the checkpoint of the query is of the group A"):
            query.stream.latest(start, is_bounded=True)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"view": "members"}, "view is 'members'"),
        ({"ranges": "[[1, 2], [5, 6]]"}, "ranges are for batches"),
    ],
)
def test_options_that_need_a_batch_are_refused(given: dict[str, str], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        LogStream(parse({"path": "n0=http://h:1", **given}))


@pytest.mark.parametrize("first", [0, 150, 215])
def test_a_batch_is_bounded_where_the_copy_with_most_entries_lacks_the_newest(
    group: Members, tmp_path: Path, first: int
) -> None:
    group.logs["n1"] = write_log(tmp_path / "late", ENTRIES[:220], small_shape())
    group.committed["n1"] = 219
    for name in ("n0", "n2"):
        group.logs[name] = damage.remove_front(group.logs[name], 2)
    with serving(group) as path:
        batches = list(group.stream(path, startingIndex=first, maxBytesPerBatch=3000).batches())

    assert [index for batch in batches for index in batch] == list(range(first, COUNT))
    log = write_log(tmp_path / "whole", ENTRIES, small_shape())
    for batch in batches:
        assert len(batch) == 1 or sum(log.place(index).size for index in batch) <= 3000

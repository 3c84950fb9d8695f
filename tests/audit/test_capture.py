"""Capturing the members' manifests, and rejecting those that an audit must not trust."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from dledger_audit.capture import Capture, capture
from dledger_formats.http.status import Manifest
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.write import write_log
from pyspark_dledger.files import ReadError


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return write_log(tmp_path_factory.mktemp("member") / "log", history(50), small_shape())


@dataclass(frozen=True)
class Member:
    answer: Manifest | ReadError

    def manifest(self) -> Manifest:
        if isinstance(self.answer, ReadError):
            raise self.answer
        return self.answer


def captured(**answers: Manifest | ReadError) -> Capture:
    @contextmanager
    def connect(url: str) -> Iterator[Member]:
        yield Member(answers[url])

    return capture("g", {member: member for member in answers}, connect)


def checks(found: Capture) -> list[tuple[str, str]]:
    return [(finding.check, finding.member) for finding in found.findings]


def test_the_agreed_index_is_the_lowest_committed_index(log: Log) -> None:
    found = captured(n0=manifest(log, "n0"), n1=manifest(log, "n1", committed_index=41))

    assert found.agreed_index == 41
    assert checks(found) == []


def test_an_unreachable_member_is_reported_and_the_others_are_kept(log: Log) -> None:
    found = captured(n0=manifest(log, "n0"), n1=ReadError("http://n1: refused"))

    assert checks(found) == [("member_unreachable", "n1")]
    assert "refused" in found.findings[0].detail
    assert list(found.manifests) == ["n0"]
    assert found.voters == {"n0", "n1"}


@pytest.mark.parametrize(("group", "self_id"), [("g", "other"), ("other", "n1")])
def test_a_manifest_of_another_member_or_group_is_rejected(
    log: Log, group: str, self_id: str
) -> None:
    found = captured(n0=manifest(log, "n0"), n1=manifest(log, self_id, group=group))

    assert checks(found) == [("member_unreachable", "n1")]
    assert "other" in found.findings[0].detail


def test_members_that_only_a_manifest_lists_count_as_unreachable_voters(log: Log) -> None:
    found = captured(n0=manifest(log, "n0", peers=["n1", "n2"]))

    assert found.voters == {"n0", "n1", "n2"}
    assert checks(found) == [("member_unreachable", "n1"), ("member_unreachable", "n2")]


def test_a_member_without_committed_entries_is_reported_if_others_have_some(log: Log) -> None:
    fresh = manifest(log, "n1", committed_index=-1)

    assert checks(captured(n0=manifest(log, "n0"), n1=fresh)) == [("nothing_committed", "n1")]
    assert checks(captured(n1=fresh)) == []


def test_a_member_that_begins_later_than_others_is_reported(log: Log) -> None:
    later = manifest(log, "n1")
    later = replace(later, status=replace(later.status, ledger_begin_index=20))
    found = captured(n0=manifest(log, "n0"), n1=later)

    assert checks(found) == [("begins_later", "n1")]
    assert found.findings[0].severity == "warning"
    assert (found.findings[0].first_index, found.findings[0].last_index) == (0, 19)


@pytest.mark.parametrize(
    ("settings", "check", "severity"),
    [
        ({"DLEDGER_FILE_RESERVED_HOURS": "0", "DLEDGER_RETENTION_BYTES": "0"},
         "begins_later", "warning"),
        ({"DLEDGER_FILE_RESERVED_HOURS": "72"}, "unrecorded", "info"),
        ({"DLEDGER_RETENTION_BYTES": "1000000"}, "unrecorded", "info"),
        ({"DLEDGER_DISK_FORCE_CLEAN_PERCENT": "85"}, "unrecorded", "info"),
    ],
)  # fmt: skip
def test_a_member_of_an_earlier_release_with_retention_may_begin_later(
    settings: dict[str, str], check: str, severity: str, log: Log
) -> None:
    later = manifest(log, "n1")
    later = replace(later, status=replace(later.status, ledger_begin_index=20, settings=settings))

    found = captured(n0=manifest(log, "n0"), n1=later)

    assert [(each.check, each.severity) for each in found.findings] == [(check, severity)]


def test_there_is_no_agreed_index_if_no_member_answers() -> None:
    found = captured(n0=ReadError("gone"), n1=ReadError("gone"))

    assert found.agreed_index == -1
    assert found.manifests == {}


def test_a_member_with_files_that_are_no_segments_is_reported(log: Log) -> None:
    odd = replace(manifest(log, "n1"), foreign=["data/notes.txt", "index/7"])

    found = captured(n0=manifest(log, "n0"), n1=odd)

    assert checks(found) == [("foreign_file", "n1")]
    assert found.findings[0].detail.startswith("data/notes.txt, index/7: ")


def test_of_many_foreign_files_some_are_named(log: Log) -> None:
    odd = replace(manifest(log, "n0"), foreign=[f"data/{number:02}" for number in range(20)])

    (finding,) = captured(n0=odd).findings

    assert finding.detail.startswith("data/00, data/01, data/02 and others: ")

"""Members that answer before their log is open, or without one: they tell nothing of their log."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import pytest

from dledger_audit.capture import Capture, capture
from dledger_audit.compaction.copies import ask
from dledger_audit.history.audit import audit_with_history
from dledger_audit.history.memory import Memory
from dledger_audit.report import summarize
from dledger_formats.http.status import STORE_IS_OPENING, Manifest, StorageState
from dledger_formats.settings import NodeSettings
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.serve import served
from dledger_logs.write import write_log
from dledger_node.http.outage import Outage
from dledger_scan.local_audit import LocalPasses
from pyspark_dledger.copies import RefusedError
from pyspark_dledger.digests import DIGEST_SCHEMA
from pyspark_dledger.files import ReadError
from pyspark_dledger.http_reader import ATTEMPTS_MAX, HttpFiles
from pyspark_dledger.patience import bounded

PATIENCE_S = 3.5
"""The fourth request has half of it left, and the pause behind it would be longer."""
MEMBERS = ("n0", "n1", "n2")
FOREIGN = "the folder belongs to the group h, and this member to g"


def unopened(reason: str, state: StorageState = StorageState.SOUND) -> Manifest:
    """Return what a member of this release answers before its log is open."""
    settings = NodeSettings(
        group="g", self_id="n0", peers={"n0": "127.0.0.1:1"}, store_base_dir="/nowhere"
    )
    return asyncio.run(Outage(settings, "1", state=state, reason=reason).manifest())


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return write_log(tmp_path_factory.mktemp("member") / "log", history(100), small_shape())


@pytest.fixture(scope="module")
def opened(log: Log) -> Manifest:
    return manifest(log, "n0", peers=MEMBERS)


def after(times: int, first: Manifest, then: Manifest) -> Callable[[], Manifest]:
    """Answer with one manifest so many times, and then with the other."""
    left = [first] * times
    return lambda: left.pop() if left else then


def test_a_member_that_opens_its_log_is_waited_for(log: Log, opened: Manifest) -> None:
    pauses: list[float] = []
    opens = after(9, unopened(STORE_IS_OPENING), opened)
    with (
        served(log.root, opens) as url,
        bounded(30.0),
        HttpFiles(url, sleep=pauses.append) as files,
    ):
        assert files.manifest() == opened

    assert pauses == [0.25, 0.5, 1.0, *[2.0] * 6]


def test_a_member_that_opens_its_log_for_longer_is_not_read(log: Log) -> None:
    with (
        served(log.root, unopened(STORE_IS_OPENING)) as url,
        bounded(PATIENCE_S),
        HttpFiles(url) as files,
        pytest.raises(ReadError, match=STORE_IS_OPENING),
    ):
        files.manifest()


def test_queries_ask_such_a_member_a_few_times(log: Log) -> None:
    pauses: list[float] = []
    with (
        served(log.root, unopened(STORE_IS_OPENING)) as url,
        HttpFiles(url, sleep=pauses.append) as files,
        pytest.raises(ReadError, match=f"lists no files yet: {STORE_IS_OPENING}"),
    ):
        files.manifest()

    assert len(pauses) == ATTEMPTS_MAX - 1


def test_a_member_that_refuses_its_folder_is_not_read_and_its_reason_is_told(log: Log) -> None:
    pauses: list[float] = []
    with (
        served(log.root, unopened(FOREIGN)) as url,
        bounded(30.0),
        HttpFiles(url, sleep=pauses.append) as files,
        pytest.raises(ReadError, match=FOREIGN),
    ):
        files.manifest()

    assert pauses == []


def test_a_new_member_with_an_open_and_empty_log_is_read(log: Log) -> None:
    added = replace(unopened("not a member of the group"), life="1f")
    with served(log.root, added) as url, HttpFiles(url) as files:
        assert files.manifest() == added


@pytest.mark.parametrize("reason", [STORE_IS_OPENING, FOREIGN])
def test_history_does_not_take_such_a_member_for_one_that_lost_its_log(
    log: Log, opened: Manifest, reason: str
) -> None:
    memory = Memory(group="g").after(DIGEST_SCHEMA.empty_table(), {"n0": opened})
    with served(log.root, unopened(reason)) as url, bounded(PATIENCE_S):
        captured = _captured(log, url)
        result, later = audit_with_history(
            LocalPasses(dict.fromkeys(MEMBERS, log)),
            captured,
            lambda: captured.manifests,
            memory,
            since_last=False,
        )
        found = summarize(captured, result).first_findings

    assert {(each.check, each.member) for each in found} == {("member_unreachable", "n0")}
    assert later.said["n0"] == memory.said["n0"]


def test_history_keeps_what_a_member_told_before_its_log_was_damaged(opened: Manifest) -> None:
    rows, damaged = DIGEST_SCHEMA.empty_table(), unopened("it is damaged", StorageState.DAMAGED)
    before = Memory(group="g").after(rows, {"n0": opened})

    assert before.after(rows, {"n0": damaged}).said == before.said


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        (STORE_IS_OPENING, StorageState.SOUND),
        (FOREIGN, StorageState.SOUND),
        ("its checkpoint cannot be read", StorageState.DAMAGED),
    ],
)
def test_compaction_does_not_take_such_a_member_for_an_empty_one(
    log: Log, reason: str, state: StorageState
) -> None:
    with (
        served(log.root, unopened(reason, state)) as url,
        bounded(PATIENCE_S),
        pytest.raises(RefusedError, match=f"its commit is not known.*{reason}"),
    ):
        ask("g", {"n0": url})


def _captured(log: Log, unopened_url: str) -> Capture:
    with ExitStack() as stack:
        urls = {
            each: stack.enter_context(served(log.root, manifest(log, each, peers=MEMBERS)))
            for each in MEMBERS[1:]
        }
        return capture("g", {"n0": unopened_url, **urls}, HttpFiles)

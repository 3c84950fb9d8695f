"""Members that answer before their log is open, or without one: they tell nothing of their log."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

import pytest

from dledger_audit.capture import Capture, capture
from dledger_audit.checks.electorate import Electorate
from dledger_audit.compaction.copies import ask
from dledger_audit.history.audit import audit_with_history
from dledger_audit.history.compared import compared
from dledger_audit.history.history_file import History
from dledger_audit.main import main
from dledger_audit.report import summarize
from dledger_audit.waiting import Waits
from dledger_formats.audit import ExitCode
from dledger_formats.http.status import STORE_IS_OPENING, Manifest, StorageState
from dledger_formats.settings import NodeSettings
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.serve import served
from dledger_logs.write import write_log
from dledger_node.http.outage import Outage
from dledger_scan.local_audit import LocalPasses
from pyspark_dledger.bearer import VARIABLE
from pyspark_dledger.copies import RefusedError
from pyspark_dledger.digests import DIGEST_SCHEMA
from pyspark_dledger.files import OpeningError, ReadError
from pyspark_dledger.http_reader import HttpFiles
from pyspark_dledger.patience import bounded, patience_of

PATIENCE_S = 3.5
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


class Clock:
    """A clock that waits move."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def waits(self, opening_s_max: float) -> Waits:
        """Return waits by this clock."""
        return Waits(opening_s_max=opening_s_max, clock=lambda: self.now_s, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opening(verified_bytes: int) -> Manifest:
    """Return what a member answers that has verified so many of 100 bytes."""
    said = unopened(STORE_IS_OPENING)
    far = replace(said.status, recovery_size_bytes=100, recovery_verified_bytes=verified_bytes)
    return replace(said, status=far)


def test_a_member_that_opens_its_log_is_waited_for_and_its_progress_is_told(
    log: Log, opened: Manifest, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The wait is longer than that for a silent member, and no silence."""
    answers = [opened] + [opening(verified_bytes=each) for each in range(100, 0, -1)]

    def manifest_now() -> Manifest:
        return answers.pop() if len(answers) > 1 else answers[0]

    with served(log.root, manifest_now) as url, bounded(PATIENCE_S):
        with clock.waits(3600).opened(url) as files:
            assert files.manifest() == opened
        patience = patience_of(url.removeprefix("http://"))
        assert patience is not None
        assert patience.left_s(for_manifest=True) == PATIENCE_S

    assert clock.now_s == 200.0
    logged = [record.getMessage() for record in caplog.records]
    assert len(logged) == 8, "one line each 30 s, and one in the end"
    assert f"waiting up to 3570 s: {url}/manifest: {STORE_IS_OPENING}, " in logged[1]
    assert "16 % of 100 bytes are verified" in logged[1]
    assert logged[-1] == f"{url} can be read after 200 s"


@pytest.mark.parametrize("status", [404, 403, 599, 503])
def test_a_small_file_that_cannot_be_read_hides_no_manifest(
    log: Log, opened: Manifest, clock: Clock, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for to learn whether the member accepts the audit token."""
    monkeypatch.setenv(VARIABLE, "nowhere")

    def refuse(path: str) -> int | None:
        return status if path.startswith("/files/") else None

    with served(log.root, opened, refuse) as url, clock.waits(60).opened(url) as files:
        assert files.manifest() == opened

    assert clock.now_s == 0


def test_a_member_that_opens_its_log_for_longer_is_not_read_and_its_progress_is_told(
    log: Log, clock: Clock
) -> None:
    with (
        served(log.root, opening(verified_bytes=35)) as url,
        clock.waits(60).opened(url) as files,
        pytest.raises(OpeningError) as caught,
    ):
        files.manifest()

    told = f"{url}/manifest: {STORE_IS_OPENING}, 35 % of 100 bytes are verified"
    assert str(caught.value) == f"waited for 60 s: {told}"


def test_an_audit_tells_how_far_a_member_is_that_does_not_open_its_log_in_time(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(log.root, opening(verified_bytes=35)) as url:
        code = main(["--group=g", f"--member=n0={url}", "--opening-within=2"])

    assert code == ExitCode.INCOMPLETE
    stdout = capsys.readouterr().out
    assert "waited for 2 s: " in stdout
    assert "35 % of 100 bytes are verified" in stdout


def test_a_query_does_not_wait_for_such_a_member(log: Log) -> None:
    pauses: list[float] = []
    with (
        served(log.root, unopened(STORE_IS_OPENING)) as url,
        HttpFiles(url, sleep=pauses.append) as files,
        pytest.raises(OpeningError, match=f"{STORE_IS_OPENING}, and nothing"),
    ):
        files.manifest()

    assert pauses == []


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
    history = _told(History(group="g"), {"n0": opened})
    with served(log.root, unopened(reason)) as url, bounded(PATIENCE_S):
        captured = _captured(log, url)
        result, later = audit_with_history(
            LocalPasses(dict.fromkeys(MEMBERS, log)),
            captured,
            lambda: captured.manifests,
            history,
            since_last=False,
        )
        found = summarize(captured, result).first_findings

    assert {(each.check, each.member) for each in found} == {("member_unreachable", "n0")}
    assert later.reports["n0"] == history.reports["n0"]


def test_history_keeps_what_a_member_told_before_its_log_was_damaged(opened: Manifest) -> None:
    damaged = unopened("it is damaged", StorageState.DAMAGED)
    before = _told(History(group="g"), {"n0": opened})

    assert _told(before, {"n0": damaged}).reports == before.reports


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


def _told(history: History, manifests: Mapping[str, Manifest]) -> History:
    """Return the history after an audit that read nothing and was given these manifests."""
    rows, members = DIGEST_SCHEMA.empty_table(), frozenset(manifests)
    electorate = Electorate(voters=members, counted=members, held={}, cuts=())
    return history.after(rows, compared(rows, rows, electorate), manifests, {}, members)


def _captured(log: Log, unopened_url: str) -> Capture:
    with ExitStack() as stack:
        urls = {
            each: stack.enter_context(served(log.root, manifest(log, each, peers=MEMBERS)))
            for each in MEMBERS[1:]
        }
        return capture("g", {"n0": unopened_url, **urls}, HttpFiles)

"""Reading a member over HTTP: every kind of response, and none at all."""

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

import pytest

from dledger_formats.log import disk
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.serve import Interrupt, never, served
from dledger_logs.write import write_log
from pyspark_dledger.files import AnswerError, GoneError, ReadError
from pyspark_dledger.http_reader import ATTEMPTS_MAX, HttpFiles, check_url

FIRST = disk.file_name(0)
Serve: TypeAlias = Callable[[Interrupt], AbstractContextManager[str]]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return write_log(tmp_path_factory.mktemp("member") / "log", history(100), small_shape())


@pytest.fixture
def url(log: Log) -> Iterator[str]:
    with served(log.root, manifest(log, "n0")) as address:
        yield address


def first_times(count: int, status: int) -> Interrupt:
    """Refuse the first `count` requests, then serve."""
    left = [status] * count
    return lambda _: left.pop() if left else None


def test_a_range_has_the_bytes_on_disk(log: Log, url: str) -> None:
    with HttpFiles(url) as files:
        assert files.read("data", FIRST, 100, 1100) == log.data_path(FIRST).read_bytes()[100:1100]
        assert files.read("index", FIRST, 32, 64) == log.unit_place(0)[0].read_bytes()[32:64]


def test_the_manifest_is_the_one_that_the_member_serves(log: Log, url: str) -> None:
    with HttpFiles(url) as files:
        assert files.manifest() == manifest(log, "n0")


def test_a_range_past_the_end_is_shorter_or_empty(log: Log, url: str) -> None:
    size = log.segment_bytes
    with HttpFiles(url) as files:
        assert len(files.read("data", FIRST, size - 10, size + 10)) == 10
        assert files.read("data", FIRST, size, size + 10) == b""


def test_a_missing_file_is_reported_after_one_request(log: Log) -> None:
    asked: list[str] = []
    with (
        served(log.root, manifest(log, "n0"), lambda path: asked.append(path)) as url,
        HttpFiles(url) as files,
        pytest.raises(GoneError, match="/segments/data/9"),
    ):
        files.read("data", "9" * 20, 0, 10)

    assert len(asked) == 1


@pytest.mark.parametrize("status", [0, 503, 500, 429], ids=["hang-up", "503", "500", "429"])
def test_a_request_is_retried_if_the_member_is_briefly_busy(log: Log, status: int) -> None:
    pauses: list[float] = []
    interrupt = first_times(2, status)
    with (
        served(log.root, manifest(log, "n0"), interrupt) as url,
        HttpFiles(url, sleep=pauses.append) as files,
    ):
        assert len(files.read("data", FIRST, 0, 10)) == 10

    assert len(pauses) == 2
    assert pauses[0] < pauses[1]


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [("3", 3), ("0", 0.25), ("86400", 7), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.25), ("-1", 0.25)],
)
def test_a_member_that_asks_for_time_gets_it_up_to_the_time_of_a_request(
    log: Log, retry_after: str, seconds: float
) -> None:
    pauses: list[float] = []
    with (
        served(log.root, manifest(log, "n0"), first_times(1, 503), retry_after=retry_after) as url,
        HttpFiles(url, timeout_seconds=7, sleep=pauses.append) as files,
    ):
        assert len(files.read("data", FIRST, 0, 10)) == 10

    assert pauses == [seconds]


def test_an_error_is_raised_after_the_last_attempt(log: Log) -> None:
    pauses: list[float] = []
    with (
        served(log.root, manifest(log, "n0"), lambda _: 0) as url,
        HttpFiles(url, sleep=pauses.append) as files,
        pytest.raises(ReadError, match=f"after {ATTEMPTS_MAX} attempts"),
    ):
        files.manifest()

    assert len(pauses) == ATTEMPTS_MAX - 1


def test_a_refused_connection_is_an_error() -> None:
    with socket.socket() as bound:  # and it does not listen
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with (
            HttpFiles(url, sleep=lambda _: None) as files,
            pytest.raises(ReadError, match="refused"),
        ):
            files.manifest()


def test_a_refused_request_is_not_retried(log: Log) -> None:
    pauses: list[float] = []
    with (
        served(log.root, manifest(log, "n0"), lambda _: 403) as url,
        HttpFiles(url, sleep=pauses.append) as files,
        pytest.raises(AnswerError, match="403"),
    ):
        files.read("data", FIRST, 0, 10)

    assert pauses == []


def test_a_connection_works_again_after_a_refused_request(log: Log) -> None:
    with (
        served(log.root, manifest(log, "n0"), first_times(1, 403)) as url,
        HttpFiles(url) as files,
    ):
        with pytest.raises(AnswerError):
            files.read("data", FIRST, 0, 10)

        assert len(files.read("data", FIRST, 0, 10)) == 10


def test_an_invalid_manifest_is_rejected(log: Log, tmp_path: Path) -> None:
    class NoManifest:
        data = index = ()

        def to_json(self) -> bytes:
            return b"<html>hello</html>"

    with (
        served(tmp_path, NoManifest(), never) as url,  # type: ignore[arg-type]
        HttpFiles(url) as files,
        pytest.raises(AnswerError, match="not a manifest"),
    ):
        files.manifest()


def test_a_server_that_ignores_ranges_is_rejected(log: Log) -> None:
    with (
        served(log.root, manifest(log, "n0"), lambda _: 200) as url,
        HttpFiles(url) as files,
        pytest.raises(AnswerError, match="HTTP 200"),
    ):
        files.read("data", FIRST, 0, 10)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("n0:40912", "not of the form"),
        ("ftp://n0", "not of the form"),
        ("http://", "not of the form"),
        ("http://n0/?a=b", "not of the form"),
        ("http://n0:0", "0 is not a valid port"),
        ("http://n0:x", "is not of the form"),
    ],
)
def test_an_invalid_url_is_rejected(url: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        check_url(url)

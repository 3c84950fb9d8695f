"""Read a member's manifest and files over its read-only HTTP.

    GET /manifest, /status                            200 the JSON of status.Manifest, NodeStatus
    GET /segments/{data,index}/NAME  Range: bytes=A-B 206 the bytes, 416 if the file ends before A,
                                                          500 with DLedger-Damage if the member
                                                          cannot read its file
    GET /files/NAME                  Range: bytes=A-B     the same, for small files and snapshots

Files are requested with the audit token, if there is one (`bearer`). A member that refuses it with
401 is asked once more if the file with the token has changed since. After that, the request fails
with UnauthorizedError, which says how to give a token.

One connection is kept and reused. Every wait, the size of every response and the number of attempts
are bounded. A request is retried if the network or the server failed, but not if the response is
invalid. Where the silence of members is bounded (`patience`), a silent member is asked for its
manifest for as long as that bound allows: it may be restarting, and cannot be read without one.

The manifest of a member that has not opened its log yet lists no files, and the term and the
indexes of an empty log, from which nothing must be concluded. So it raises OpeningError.
"""

import http.client
import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import SplitResult, urlsplit

from dledger_formats.http.status import (
    DAMAGE_HEADER,
    STORE_IS_OPENING,
    Manifest,
    NodeStatus,
    StorageState,
)
from dledger_formats.json_objects import FormatError
from pyspark_dledger.bearer import VARIABLE, Bearer, TokenError
from pyspark_dledger.files import (
    AnswerError,
    DiskError,
    GoneError,
    OpeningError,
    ReadError,
    UnauthorizedError,
)
from pyspark_dledger.http_answers import body_of, check_range, retry_after_seconds
from pyspark_dledger.pace import pace_of
from pyspark_dledger.patience import patience_of

T = TypeVar("T")
_LOG: Final = logging.getLogger(__name__)

MANIFEST_BYTES_MAX: Final = 16 << 20
REASON_BYTES_MAX: Final = 1024
TIMEOUT_SECONDS: Final = 20.0
ATTEMPTS_MAX: Final = 4
FIRST_PAUSE_SECONDS: Final = 0.25
PAUSE_SECONDS_MAX: Final = 2.0
"""Between attempts, unless the member asks for more."""
TOKEN_ADVICE: Final = (
    "give the audit token of its group: --token-file FILE of dledger-audit, the option tokenFile "
    f"in Spark, or {VARIABLE}=FILE"
)

_RETRIED_STATUS: Final = (408, 429, 500, 502, 503, 504)


def check_url(url: str) -> SplitResult:
    """Split a member's URL; raises ValueError if it is not http://HOST[:PORT][/PATH]."""
    form = f"{url!r} is not of the form http://HOST[:PORT][/PATH]"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:  # about a port or brackets, without the URL
        raise ValueError(form) from error
    if parts.scheme != "http" or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(form)
    if port == 0:
        raise ValueError(f"{url!r}: 0 is not a valid port")
    return parts


class _BusyError(http.client.HTTPException):
    """The member asks for a later retry."""

    def __init__(self, what: str, retry_after_seconds: float) -> None:
        super().__init__(what)
        self.retry_after_seconds = retry_after_seconds


class HttpFiles:
    """One member's files; implements `files.Files`. Not thread-safe."""

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        attempts_max: int | None = None,
        bearer: Bearer | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare the connection without opening it; raises ValueError like `check_url`.

        `attempts_max` holds for the manifest of a silent member, too. Without it, the bound on
        silence holds there.
        """
        parts = check_url(url)
        assert parts.hostname is not None
        self._url = url
        self._path = parts.path.rstrip("/")
        self._connection = http.client.HTTPConnection(
            parts.hostname, parts.port, timeout=timeout_seconds
        )
        self._attempts_max = attempts_max or ATTEMPTS_MAX
        self._waits_for_manifest = attempts_max is None
        self._bearer = bearer or Bearer()
        self._authorization: dict[str, str] | None = None
        self._sleep = sleep
        self._timeout_seconds = timeout_seconds
        self._pace = pace_of(parts.netloc)
        self._patience = patience_of(parts.netloc)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connection.close()

    def manifest(self) -> Manifest:
        """Return the member's manifest.

        Raises OpeningError if the member has not opened its log yet, and ReadError if the manifest
        cannot be read, or lists nothing for another reason.
        """
        return self._retried("/manifest", self._open_manifest, is_manifest=True)

    def status(self) -> NodeStatus:
        """Return the member's status, which is short. Raises ReadError."""
        return self._retried("/status", self._open_status, is_manifest=True)

    def _open_status(self) -> NodeStatus:
        raw = self._ask("/status", None, MANIFEST_BYTES_MAX)
        try:
            return NodeStatus.from_json(bytes(raw))
        except FormatError as error:
            raise AnswerError(f"{self._url}/status is not a status: {error}") from error

    def _open_manifest(self) -> Manifest:
        where = f"{self._url}/manifest"
        raw = self._ask("/manifest", None, MANIFEST_BYTES_MAX)
        self._spend(len(raw))
        try:
            manifest = Manifest.from_json(bytes(raw))
        except FormatError as error:
            raise AnswerError(f"{where} is not a manifest: {error}") from error
        if manifest.is_unlisted and manifest.status.storage is StorageState.SOUND:
            reason = manifest.status.reason
            if reason == STORE_IS_OPENING:
                raise OpeningError(f"{where}: {_opening(manifest.status)}")
            raise ReadError(f"{where}: the member is out of service, and lists no files: {reason}")
        return manifest

    def read(self, folder: str, name: str, start: int, end: int) -> bytearray:
        """Return the bytes [start, end) of a file, or fewer if the file ends before `end`.

        With a rate, they are requested in small parts. Raises DiskError if the member cannot read
        some of them.
        """
        assert 0 <= start < end
        path, part_bytes = f"/segments/{folder}/{name}", end - start
        if self._pace is not None:
            part_bytes = min(part_bytes, self._pace.part_bytes)
        got = self._get(path, start, part_bytes)
        while part_bytes <= len(got) < end - start:
            part = self._get(path, start + len(got), min(part_bytes, end - start - len(got)))
            got += part
            if not part:
                break
        return got

    def read_file(self, name: str, start: int, end: int) -> bytearray:
        """Return the bytes [start, end) of a small file or a snapshot's file, as `read` does.

        They are one answer, so they are of one file even if the member replaces it meanwhile.
        """
        assert 0 <= start < end
        return self._get(f"/files/{name}", start, end - start)

    def _get(self, path: str, start: int, bytes_max: int) -> bytearray:
        """Return bytes of a file. The next attempt asks only for those that have not arrived."""
        got = bytearray()

        def rest() -> bytearray:
            try:
                return self._ask(path, start + len(got), bytes_max - len(got))
            except http.client.IncompleteRead as error:
                got.extend(error.partial)
                raise

        body = self._retried(path, rest, is_manifest=False)
        self._spend(len(body))
        return got + body if got else body

    def _retried(self, path: str, once: Callable[[], T], *, is_manifest: bool) -> T:
        """Send a request, with up to `attempts_max` attempts and growing pauses between them.

        Attempts that the member answered as busy are counted apart from unanswered ones, because a
        restarted member may be busy. A pause is longer if the member asks for that, but no longer
        than a request may take.
        """
        failed: Counter[bool] = Counter()
        while True:
            began_s = self._begin(path, is_manifest=is_manifest)
            try:
                answer = once()
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                failed[isinstance(error, _BusyError)] += 1
                self._wait(failed, error, path, began_s, is_manifest=is_manifest)
            else:
                if self._patience is not None:
                    self._patience.answered(began_s, is_manifest=is_manifest)
                return answer

    def _spend(self, count: int) -> None:
        if self._pace is not None:
            self._pace.spend(count)

    def _wait(
        self,
        failed: Counter[bool],
        error: Exception,
        path: str,
        began_s: float,
        *,
        is_manifest: bool,
    ) -> None:
        """Wait for the next attempt. Raises ReadError if there is none.

        `failed` has how many attempts were answered as busy (True), and how many otherwise failed.
        """
        attempt = failed[isinstance(error, _BusyError)]
        pause_s, what = self._pause_seconds(attempt, error), error or type(error).__name__
        has_attempts, left_s = attempt < self._attempts_max, math.inf
        silence = None if isinstance(error, _BusyError) else self._patience
        if silence is not None:
            silence.waited(began_s)
            left_s = silence.left_s(for_manifest=is_manifest)
            if is_manifest and self._waits_for_manifest:
                has_attempts = left_s > pause_s
        if not (has_attempts and left_s):
            raise ReadError(
                f"{self._url}{path}: {what} (after {failed.total()} attempts)"
            ) from error
        if attempt == self._attempts_max:
            _LOG.warning("waiting up to %.0f s for %s: %s", left_s, self._url, what)
        began_s = silence.clock() if silence is not None else 0.0
        self._sleep(pause_s)
        if silence is not None:
            silence.waited(began_s)

    def _begin(self, path: str, *, is_manifest: bool) -> float:
        """Return when an attempt begins; bound its time. Raises ReadError after a long silence."""
        if self._patience is None:
            return 0.0
        left_s = self._patience.left_s(for_manifest=is_manifest)
        if not left_s:
            raise ReadError(
                f"{self._url}{path}: the member was silent for too long, and is no longer asked"
            )
        self._connection.timeout = min(self._timeout_seconds, left_s)
        if self._connection.sock is not None:
            self._connection.sock.settimeout(self._connection.timeout)
        return self._patience.clock()

    def _pause_seconds(self, attempt: int, error: Exception) -> float:
        pause: float = min(PAUSE_SECONDS_MAX, FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
        if isinstance(error, _BusyError):
            pause = max(pause, min(error.retry_after_seconds, self._timeout_seconds))
        return pause

    def _ask(self, path: str, start: int | None, bytes_max: int) -> bytearray:
        """Send a request once; raises OSError or HTTPException if it should be retried."""
        where = f"{self._url}{path}"
        headers = {}
        if start is not None:
            headers = {"Range": f"bytes={start}-{start + bytes_max - 1}", **self._token(where)}
        response = self._response(path, headers)
        if response.status == 401 and start is not None:
            refused, self._authorization = self._authorization, None
            newer = self._token(where)
            if newer != refused:
                self._connection.close()
                response = self._response(path, headers | newer)
        if response.status == (200 if start is None else 206):
            if start is not None:
                check_range(response, start, where)
            return body_of(response, bytes_max, where)
        reason = response.read(REASON_BYTES_MAX).decode(errors="replace").strip()
        self._connection.close()  # the rest of the body stays unread
        if response.status == 416 and start is not None:
            return bytearray()
        if response.headers.get(DAMAGE_HEADER):
            raise DiskError(f"{where}: {reason}")
        if response.status in _RETRIED_STATUS:
            what = f"HTTP {response.status} {response.reason}"
            raise _BusyError(what, retry_after_seconds(response))
        if response.status == 404:
            raise GoneError(f"{where}: no such file")
        if response.status == 401:
            refusal = self._refusal(reason or "HTTP 401")
            raise UnauthorizedError(f"{where}: {refusal}; {TOKEN_ADVICE}")
        raise AnswerError(f"{where}: HTTP {response.status} {response.reason}")

    def _refusal(self, reason: str) -> str:
        """Return why a member refuses the token, or the lack of one.

        Findings cut long reasons, so what the member cannot know comes first.
        """
        lack = "" if self._authorization else self._bearer.lack()
        return f"{lack}, and {reason}" if lack else reason

    def _response(self, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        self._connection.request("GET", self._path + path, headers=headers)
        return self._connection.getresponse()

    def _token(self, where: str) -> dict[str, str]:
        if self._authorization is None:
            try:
                self._authorization = self._bearer.headers()
            except TokenError as error:
                raise UnauthorizedError(f"{where} needs the audit token: {error}") from error
        return self._authorization


def _opening(status: NodeStatus) -> str:
    """Describe the progress of a member that opens its log."""
    size, verified = status.recovery_size_bytes, status.recovery_verified_bytes
    if not size:
        return f"{status.reason}, and nothing of it is verified yet"
    return f"{status.reason}, {verified * 100 // size} % of {size:,} bytes are verified"

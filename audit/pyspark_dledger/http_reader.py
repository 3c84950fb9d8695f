"""Read a member's manifest and files over its read-only HTTP.

    GET /manifest                                     200 the JSON of status.Manifest
    GET /segments/{data,index}/NAME  Range: bytes=A-B 206 the bytes, 416 if the file ends before A,
                                                          500 with DLedger-Damage if the member
                                                          cannot read its file
    GET /files/NAME                  Range: bytes=A-B     the same, for small files and snapshots

Files are requested with the audit token, if there is one (`bearer`). A member that refuses it with
401 is asked once more if the file with the token has changed since.

One connection is kept and reused. Every wait, the size of every response and the number of attempts
are bounded. A request is retried if the network or the server failed, but not if the response is
invalid.
"""

import http.client
import re
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self
from urllib.parse import SplitResult, urlsplit

from dledger_formats.http.status import DAMAGE_HEADER, Manifest
from dledger_formats.json_objects import FormatError
from pyspark_dledger.bearer import Bearer, TokenError
from pyspark_dledger.files import AnswerError, DiskError, GoneError, ReadError
from pyspark_dledger.pace import pace_of
from pyspark_dledger.patience import patience_of

MANIFEST_BYTES_MAX: Final = 16 << 20
REASON_BYTES_MAX: Final = 1024
TIMEOUT_SECONDS: Final = 20.0
ATTEMPTS_MAX: Final = 4
FIRST_PAUSE_SECONDS: Final = 0.25

_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(?:\d+|\*)")
_RETRIED_STATUS: Final = (408, 429, 500, 502, 503, 504)


def check_url(url: str) -> SplitResult:
    """Split a member's URL; raises ValueError if it is not http://HOST[:PORT][/PATH]."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"{url!r} is not of the form http://HOST[:PORT][/PATH]")
    if parts.port == 0:  # the property raises ValueError for other invalid ports
        raise ValueError(f"{url!r}: 0 is not a valid port")
    return parts


class _BusyError(http.client.HTTPException):
    """The member asks to be asked again later."""

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
        attempts_max: int = ATTEMPTS_MAX,
        bearer: Bearer | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare the connection without opening it; raises ValueError like `check_url`."""
        parts = check_url(url)
        assert parts.hostname is not None
        self._url = url
        self._path = parts.path.rstrip("/")
        self._connection = http.client.HTTPConnection(
            parts.hostname, parts.port, timeout=timeout_seconds
        )
        self._attempts_max = attempts_max
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
        """Return the member's manifest; raises ReadError if it cannot be read."""
        raw = self._get("/manifest", None, MANIFEST_BYTES_MAX)
        try:
            return Manifest.from_json(bytes(raw))
        except FormatError as error:
            raise AnswerError(f"{self._url}/manifest is not a manifest: {error}") from error

    def read(self, folder: str, name: str, start: int, end: int) -> bytearray:
        """Return the bytes [start, end) of a file, or fewer if the file ends before `end`.

        Raises DiskError if the member cannot read some of them.
        """
        assert 0 <= start < end
        return self._get(f"/segments/{folder}/{name}", start, end - start)

    def read_file(self, name: str, start: int, end: int) -> bytearray:
        """Return the bytes [start, end) of a small file or a snapshot's file, as `read` does."""
        assert 0 <= start < end
        return self._get(f"/files/{name}", start, end - start)

    def _get(self, path: str, start: int | None, bytes_max: int) -> bytearray:
        """Send a request, with up to `attempts_max` attempts and growing pauses between them.

        A pause is longer if the member asks for that, but no longer than a request may take. The
        next attempt asks only for the bytes that have not arrived.
        """
        got = bytearray()
        for attempt in range(1, self._attempts_max + 1):
            began_s = self._begin(path, is_manifest=start is None)
            try:
                at = None if start is None else start + len(got)
                body = self._ask(path, at, bytes_max - len(got))
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if isinstance(error, http.client.IncompleteRead) and start is not None:
                    got += error.partial
                is_last = attempt == self._attempts_max
                if not is_last:
                    self._sleep(self._pause_seconds(attempt, error))
                if self._patience is not None and not isinstance(error, _BusyError):
                    self._patience.waited(began_s)
                if is_last:
                    raise ReadError(
                        f"{self._url}{path}: {error or type(error).__name__}"
                        f" (after {attempt} attempts)"
                    ) from error
            else:
                if self._patience is not None:
                    self._patience.answered(began_s, is_manifest=start is None)
                if self._pace is not None:
                    self._pace.spend(len(body))
                return got + body if got else body
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _begin(self, path: str, *, is_manifest: bool) -> float:
        """Return when an attempt begins, and bound its time. Raises ReadError if the member was
        silent for too long.
        """
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
        pause: float = FIRST_PAUSE_SECONDS * 2 ** (attempt - 1)
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
                _check_range(response, start, where)
            return _body(response, bytes_max, where)
        reason = response.read(REASON_BYTES_MAX).decode(errors="replace").strip()
        self._connection.close()  # the rest of the body stays unread
        if response.status == 416 and start is not None:
            return bytearray()
        if response.headers.get(DAMAGE_HEADER):
            raise DiskError(f"{where}: {reason}")
        if response.status in _RETRIED_STATUS:
            what = f"HTTP {response.status} {response.reason}"
            raise _BusyError(what, _retry_after_seconds(response))
        if response.status == 404:
            raise GoneError(f"{where}: no such file")
        told = f": {reason}" if response.status == 401 else ""
        raise AnswerError(f"{where}: HTTP {response.status} {response.reason}{told}")

    def _response(self, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        self._connection.request("GET", self._path + path, headers=headers)
        return self._connection.getresponse()

    def _token(self, where: str) -> dict[str, str]:
        if self._authorization is None:
            try:
                self._authorization = self._bearer.headers()
            except TokenError as error:
                raise AnswerError(f"{where} needs the audit token: {error}") from error
        return self._authorization


def _retry_after_seconds(response: http.client.HTTPResponse) -> float:
    """Return the seconds of the header Retry-After; 0 without it or with a date."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0.0


def _check_range(response: http.client.HTTPResponse, start: int, where: str) -> None:
    said = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if said is None or int(said[1]) != start:
        raise AnswerError(f"{where}: the response does not start at byte {start}")


def _body(response: http.client.HTTPResponse, bytes_max: int, where: str) -> bytearray:
    """Read a body of known length into one buffer."""
    length = response.length
    if length is None or length > bytes_max:
        raise AnswerError(f"{where}: Content-Length is {length}; at most {bytes_max} is allowed")
    body, filled = bytearray(length), 0
    with memoryview(body) as view:
        while filled < length:
            count = response.readinto(view[filled:])
            if not count:
                raise http.client.IncompleteRead(bytes(view[:filled]), length - filled)
            filled += count
    return body

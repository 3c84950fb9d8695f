"""Read a member's manifest and files over its read-only HTTP.

    GET /manifest                                     200 the JSON of status.Manifest
    GET /segments/{data,index}/NAME  Range: bytes=A-B 206 those bytes, 416 if the file ends before A

One connection is kept and used again. Every wait, every answer's size and the number of attempts
are bounded; a request is repeated only when the network or the server failed, not when the answer
makes no sense.
"""

import http.client
import re
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self
from urllib.parse import SplitResult, urlsplit

from dledger_formats.http.status import Manifest
from dledger_formats.json_objects import FormatError
from pyspark_dledger.files import AnswerError, GoneError, ReadError

MANIFEST_BYTES_MAX: Final = 16 << 20
TIMEOUT_SECONDS: Final = 20.0
ATTEMPTS_MAX: Final = 4
FIRST_PAUSE_SECONDS: Final = 0.25

_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(?:\d+|\*)")
_RETRIED_STATUS: Final = (408, 429, 500, 502, 503, 504)


def check_url(url: str) -> SplitResult:
    """Split a member's URL; ValueError if it is not http://HOST[:PORT][/PATH]."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"{url!r} is not of the form http://HOST[:PORT][/PATH]")
    if parts.port == 0:  # the property itself raises ValueError for what is no port
        raise ValueError(f"{url!r} has the port 0")
    return parts


class HttpFiles:
    """One member's files; satisfies `files.Files`. Not for use by several threads at once."""

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        attempts_max: int = ATTEMPTS_MAX,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Connect to nothing yet; ValueError as from `check_url`."""
        parts = check_url(url)
        assert parts.hostname is not None
        self._url = url
        self._path = parts.path.rstrip("/")
        self._connection = http.client.HTTPConnection(
            parts.hostname, parts.port, timeout=timeout_seconds
        )
        self._attempts_max = attempts_max
        self._sleep = sleep

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
        """Ask what may be read; ReadError when the member cannot be asked."""
        raw = self._get("/manifest", None, MANIFEST_BYTES_MAX)
        try:
            return Manifest.from_json(bytes(raw))
        except FormatError as error:
            raise AnswerError(f"{self._url}/manifest is no manifest: {error}") from error

    def read(self, folder: str, name: str, start: int, end: int) -> bytearray:
        """Return the bytes [start, end) of a file, and fewer only when the file ends there."""
        assert 0 <= start < end
        return self._get(f"/segments/{folder}/{name}", start, end - start)

    def _get(self, path: str, start: int | None, bytes_max: int) -> bytearray:
        """Ask until there is an answer, `attempts_max` times at most, pausing longer each time."""
        for attempt in range(1, self._attempts_max + 1):
            try:
                return self._ask(path, start, bytes_max)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if attempt == self._attempts_max:
                    raise ReadError(
                        f"{self._url}{path}: {error or type(error).__name__}"
                        f" (asked {attempt} times)"
                    ) from error
                self._sleep(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _ask(self, path: str, start: int | None, bytes_max: int) -> bytearray:
        """Ask once; OSError and HTTPException are for asking again."""
        headers = {} if start is None else {"Range": f"bytes={start}-{start + bytes_max - 1}"}
        self._connection.request("GET", self._path + path, headers=headers)
        response = self._connection.getresponse()
        where = f"{self._url}{path}"
        if response.status == (200 if start is None else 206):
            if start is not None:
                _check_range(response, start, where)
            return _body(response, bytes_max, where)
        self._connection.close()  # what else it says stays unread
        if response.status == 416 and start is not None:
            return bytearray()
        if response.status in _RETRIED_STATUS:
            raise http.client.HTTPException(f"HTTP {response.status} {response.reason}")
        if response.status == 404:
            raise GoneError(f"{where}: there is no such file")
        raise AnswerError(f"{where}: HTTP {response.status} {response.reason}")


def _check_range(response: http.client.HTTPResponse, start: int, where: str) -> None:
    said = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if said is None or int(said[1]) != start:
        raise AnswerError(f"{where}: the answer is not the range from {start} on")


def _body(response: http.client.HTTPResponse, bytes_max: int, where: str) -> bytearray:
    """Read a body of announced length into one buffer."""
    length = response.length
    if length is None or length > bytes_max:
        raise AnswerError(f"{where}: {length} bytes were announced; allowed are {bytes_max}")
    body, filled = bytearray(length), 0
    with memoryview(body) as view:
        while filled < length:
            count = response.readinto(view[filled:])
            if not count:
                raise http.client.IncompleteRead(bytes(view[:0]), length - filled)
            filled += count
    return body

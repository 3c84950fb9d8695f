"""Check and read the responses of members; `http_reader` requests them."""

import http.client
import re
from typing import Final

from pyspark_dledger.files import AnswerError

_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(?:\d+|\*)")


def retry_after_seconds(response: http.client.HTTPResponse) -> float:
    """Return the seconds of the header Retry-After; 0 without it or with a date."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0.0


def check_range(response: http.client.HTTPResponse, start: int, where: str) -> None:
    """Raise AnswerError if a response does not begin at this byte of the file."""
    sent = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if sent is None or int(sent[1]) != start:
        raise AnswerError(f"{where}: the response does not start at byte {start}")


def body_of(response: http.client.HTTPResponse, bytes_max: int, where: str) -> bytearray:
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

"""What a stranger sends costs a bounded number of short log lines."""

import asyncio
import logging

import pytest
from aiohttp import web
from aiohttp.http_exceptions import BadStatusLine
from aiohttp.test_utils import TestServer

from dledger_node.limited_log import LINES_MAX, PERIOD_S, LineBudget, StrangersFilter
from dledger_wire.listener import Clock

TOKEN = "uT0yq1Zc0d3VtVtdPq1Tn8yKfXf3WJmVb2oGJ2Wd81k"


@pytest.fixture
def clock() -> Clock:
    return Clock()


def record_of(error: BaseException, text: str = "Error handling request") -> logging.LogRecord:
    return logging.LogRecord(
        "aiohttp.server", logging.ERROR, "x.py", 1, text, (), (type(error), error, None)
    )


async def serve(sent: bytes) -> None:
    """Send bytes to a server of aiohttp, whose lines the filter limits, and wait for its answer."""
    only = StrangersFilter(LineBudget())
    logging.getLogger("aiohttp.server").addFilter(only)
    async with TestServer(web.Application()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent)
        await reader.read()
        writer.close()
        await writer.wait_closed()
    logging.getLogger("aiohttp.server").removeFilter(only)


def test_lines_beyond_the_budget_are_left_out_and_counted_in_the_next_period(clock: Clock) -> None:
    budget = LineBudget(clock)
    assert [budget.admit("a") for _ in range(LINES_MAX + 5)] == [""] * LINES_MAX + [None] * 5

    clock.now_s += PERIOD_S

    assert budget.admit("a") == " (5 lines of this kind were left out before)"
    assert budget.admit("a") == ""


def test_each_kind_has_its_own_budget(clock: Clock) -> None:
    budget = LineBudget(clock)
    for _ in range(LINES_MAX + 1):
        budget.admit("a")

    assert budget.admit("b") == ""


def test_a_bad_request_is_one_short_line_without_a_traceback(clock: Clock) -> None:
    record = record_of(BadStatusLine("x" * 10_000))

    assert StrangersFilter(LineBudget(clock)).filter(record)
    assert record.exc_info is None
    assert (record.levelname, len(record.getMessage()) < 1000) == ("WARNING", True)


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"GET / HTTP/9.9\r\n\r\n", "Bad status line: Invalid HTTP version"),
        (b"GET / HTTP/1.1\r\n\r\n", "Missing 'Host' header in request."),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "Invalid character in Content-Length"),
    ],
)
async def test_a_bad_request_is_told_in_words(
    sent: bytes, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    await serve(sent)

    assert caplog.messages == [f"Error handling request from 127.0.0.1: {told}"]


@pytest.mark.parametrize(
    "value",
    [
        TOKEN + "x" * 10_000,
        f'"{TOKEN}' + "x" * 10_000,
        f"'\"{TOKEN}\\" + "x" * 10_000,
        f"{TOKEN}\x01",
        f"{TOKEN}\n{TOKEN}",
    ],
    ids=["long", "long and quoted", "long with quotes", "odd character", "a second line"],
)
@pytest.mark.parametrize("scheme", ["Bearer ", ""])
async def test_a_header_with_a_token_that_is_refused_does_not_show_it(
    scheme: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    head = "GET / HTTP/1.1\r\nHost: member\r\nAuthorization: "
    await serve(f"{head}{scheme}{value}\r\n\r\n".encode())

    (line,) = caplog.messages
    assert line.startswith("Error handling request from 127.0.0.1")
    assert TOKEN[:8] not in line


@pytest.mark.parametrize("form", ["Got more than 5 bytes: {!r}.", "Bad status line {!r}", "{!r}"])
def test_nothing_that_aiohttp_quotes_is_shown(form: str, clock: Clock) -> None:
    for quoted in (TOKEN, TOKEN.encode(), repr(TOKEN.encode()), f"'Host' \"{TOKEN}"):
        record = record_of(BadStatusLine("", form.format(quoted)))

        assert StrangersFilter(LineBudget(clock)).filter(record)
        assert TOKEN[:8] not in record.getMessage()


def test_an_error_of_this_program_keeps_its_traceback(clock: Clock) -> None:
    record = record_of(KeyError("x"))

    assert StrangersFilter(LineBudget(clock)).filter(record)
    assert (record.exc_info is not None, record.levelname) == (True, "ERROR")


def test_a_percent_sign_in_a_bad_request_does_no_harm(clock: Clock) -> None:
    record = record_of(BadStatusLine("%s %d"), "from %s at %s")
    record.args = ("127.0.0.1", "a%sb")

    assert StrangersFilter(LineBudget(clock)).filter(record)
    assert "a%sb" in record.getMessage()

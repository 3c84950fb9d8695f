"""Log lines as collectors read them."""

import json
import logging
import sys

from dledger_formats.log_lines import JsonFormatter


def test_a_line_of_json_has_time_level_logger_and_message() -> None:
    record = logging.LogRecord("a.b", logging.WARNING, __file__, 1, "%s leads", ("n1",), None)

    line = json.loads(JsonFormatter().format(record))

    assert (line["level"], line["logger"], line["message"]) == ("warning", "a.b", "n1 leads")
    assert line["time"].endswith("+00:00")


def test_an_exception_keeps_its_traceback_on_one_line() -> None:
    try:
        raise ValueError("oops")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, __file__, 1, "failed", (), sys.exc_info())

    text = JsonFormatter().format(record)

    assert "\n" not in text
    assert "ValueError: oops" in json.loads(text)["exception"]

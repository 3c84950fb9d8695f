"""Answers to several appends, with one write for each connection."""

from collections.abc import Mapping, Sequence

from dledger_formats.protocol import frames
from dledger_node.remoting.connection_views import WritableConnection
from dledger_node.remoting.service import ClientCall

Answers = dict[WritableConnection, list[tuple[int, bytes]]]
"""The answers of each connection: the opaque number of a request and the encoded response."""


def send(answers: Mapping[WritableConnection, Sequence[tuple[int, bytes]]]) -> None:
    """Send the answers."""
    for connection, responses in answers.items():
        connection.send(frames.encode_responses(responses))


def send_to_all(calls: Sequence[ClientCall], response: bytes) -> None:
    """Send one encoded response to all calls."""
    answers: Answers = {}
    for call in calls:
        answers.setdefault(call.connection, []).append((call.opaque, response))
    send(answers)

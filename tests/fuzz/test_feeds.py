"""The fuzzers tell an input that is refused from a value that was decoded and then fails."""

from types import ModuleType

import pytest

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol import frames, requests
from dledger_formats.rocketmq import (
    message_batch,
    message_record,
    state_records,
)
from dledger_formats.rocketmq.consumer_groups import Heartbeat
from dledger_formats.rocketmq.message_record import MessageRecordError
from dledger_fuzz import file_decoders, network_decoders, rocketmq_decoders
from dledger_fuzz.network_decoders import Decoder
from dledger_node.errors import RemoteProtocolError
from dledger_node.remoting import native
from dledger_node.store.derived import producers_file
from dledger_node.store.small_files import removals_file


@pytest.mark.parametrize(
    ("decoder", "owner", "encoder", "refusal"),
    [
        (network_decoders.frame_decoder, frames, "encode", frames.FrameError),
        (network_decoders.request_decoders, requests.AppendEntryRequest, "to_json", FormatError),
        (network_decoders.native_messages, native, "encode", RemoteProtocolError),
        (rocketmq_decoders.heartbeats, Heartbeat, "to_json", FormatError),
        (rocketmq_decoders.message_batches, message_batch, "encode", FormatError),
        (rocketmq_decoders.state_changes, state_records, "encode", FormatError),
        (rocketmq_decoders.stored_messages, message_record, "encode", MessageRecordError),
        (file_decoders.producers_files, producers_file, "encode", ValueError),
        (file_decoders.removals_files, removals_file, "encode", ValueError),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_round_trip_that_fails_is_no_refused_input(
    decoder: Decoder,
    owner: ModuleType | type,
    encoder: str,
    refusal: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    corpus, feed = decoder()

    class Unwritable(refusal):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            Exception.__init__(self)

    def fail(*arguments: object, **named: object) -> bytes:
        raise Unwritable

    monkeypatch.setattr(owner, encoder, fail)

    with pytest.raises(Unwritable):
        feed_all(feed, corpus)


@pytest.mark.parametrize(
    ("decoder", "reader", "read"),
    [
        (network_decoders.append_reader, "AppendReader", (None, b"")),
        (network_decoders.idempotent_append_reader, "IdempotentAppendReader", (None, b"", 0, 1)),
        (network_decoders.append_batch_reader, "AppendBatchReader", (None, [])),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_reader_that_takes_what_the_format_refuses_is_found(
    decoder: Decoder, reader: str, read: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    class TakesAll:
        def __init__(self, check: object) -> None: ...

        def read(self, raw: bytes) -> tuple[object, ...]:
            return read

    monkeypatch.setattr(network_decoders, reader, TakesAll)
    _, feed = decoder()

    with pytest.raises(FormatError):
        feed(b"{not json")


def feed_all(feed: network_decoders.Feed, corpus: list[bytes]) -> None:
    """Feed each sound input, with ends of all lengths: some decoders choose by the length."""
    for raw in corpus:
        for spaces in range(8):
            feed(raw + b" " * spaces)

"""Bytes that no sane peer sends close their connection, are counted, and do nothing else."""

import random
import socket

import pytest

from dledger_formats.log import disk
from dledger_formats.protocol import frames, requests
from dledger_formats.protocol.append_batch import APPEND_BATCH, AppendBatchRequest
from dledger_formats.protocol.codes import DLedgerResponseCode, RequestCode, SystemCode
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.protocol.producers import APPEND_IDEMPOTENT, APPEND_IDEMPOTENT_BATCH
from dledger_group.wire import ask, connect
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.raft.messages import AppendRequest
from dledger_node.remoting import native
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for


def protocol_errors(group: NodeGroup, member: str) -> float:
    lines = group.get(member, "/metrics")[1].decode().splitlines()
    prefix = 'dledger_node_connections_closed_total{reason="protocol"} '
    return float(next(line for line in lines if line.startswith(prefix)).removeprefix(prefix))


def hello(**changed: object) -> native.Hello:
    fields: dict[str, object] = {
        "group": "g",
        "sender_id": "n0",
        "receiver_id": "n1",
        "segment_size_bytes": 1 << 20,
        "incarnation": 1,
        "protocol": native.OLDEST_PROTOCOL,
    }
    return native.Hello(**{**fields, **changed})  # type: ignore[arg-type]


def closed_by_peer(connection: socket.socket) -> bool:
    """Return whether the other side closed the connection without sending another byte."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff" * 64,
        b"\x00\x00\x00\x10\x00\x00\x00\xff" + bytes(16),
        random.Random(7).randbytes(4096),
        b"\x00\x00\x00\x0a\x00\x00\x00\x02{]" + bytes(4),
    ],
    ids=["http", "huge length", "header longer than frame", "noise", "header that is no json"],
)
def test_garbage_closes_the_connection_and_is_counted(
    steady_group: NodeGroup, garbage: bytes
) -> None:
    master = steady_group.master()
    before = steady_group.status(master)
    counted = protocol_errors(steady_group, master)

    with connect(steady_group, master) as connection:
        connection.sendall(garbage)
        assert closed_by_peer(connection)

    wait_for(lambda: protocol_errors(steady_group, master) == counted + 1, "the garbage is counted")
    after = steady_group.status(master)
    assert (after.term, after.master) == (before.term, True)


def test_a_message_before_hello_closes_the_connection(steady_group: NodeGroup) -> None:
    master = steady_group.master()
    message = RemotingCommand(code=native.MESSAGE_CODE, opaque=0, body=b"\x01" + bytes(24))

    with connect(steady_group, master) as connection:
        connection.sendall(frames.encode(message))

        assert closed_by_peer(connection)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"group": "other"}, "group"),
        ({"receiver_id": "n2"}, "n1"),
        ({"sender_id": "n9"}, "n9"),
        ({"segment_size_bytes": 4096}, "segments"),
        ({"protocol": native.NEWEST_PROTOCOL + 1}, "protocol"),
    ],
)
def test_a_stranger_may_not_open_a_link_and_is_told_why(
    steady_group: NodeGroup, changed: dict[str, object], word: str
) -> None:
    steady_group.master()
    frame = FrameDecoder().feed(native.encode_hello(hello(**changed), opaque=5))[0]

    answer = ask(steady_group, "n1", frame)

    body = requests.Response.from_json(answer.body)
    assert body.code is DLedgerResponseCode.UNKNOWN_MEMBER
    assert word in (answer.remark or "")


@pytest.mark.parametrize("field", ["group", "sender_id", "receiver_id"])
def test_a_hello_with_an_endless_name_is_a_protocol_error(
    steady_group: NodeGroup, field: str
) -> None:
    """A refusal would quote the name, and not fit the header of a frame."""
    steady_group.master()
    counted = protocol_errors(steady_group, "n1")

    with connect(steady_group, "n1") as connection:
        connection.sendall(native.encode_hello(hello(**{field: "g" * 70_000}), opaque=0))
        assert closed_by_peer(connection)

    wait_for(lambda: protocol_errors(steady_group, "n1") == counted + 1, "the HELLO is counted")


def test_a_push_with_a_flipped_bit_is_never_stored(steady_group: NodeGroup) -> None:
    """The bytes are checked before the core gets them."""
    master = steady_group.master()
    follower = next(member for member in steady_group.running() if member != master)
    sender = next(member for member in steady_group.peers if member != follower)
    before = steady_group.status(follower)
    entry = bytearray(48)
    entry[3] = 1  # magic 1, but a size of 0

    with connect(steady_group, follower) as connection:
        greeting = hello(sender_id=sender, receiver_id=follower)
        connection.sendall(native.encode_hello(greeting, opaque=0))
        connection.recv(4096)
        push = AppendRequest(
            sender=sender, receiver=follower, term=before.term, previous_index=0, previous_term=0,
            first_index=1, last_index=1, entries_term=before.term, committed_index=0,
        )  # fmt: skip
        connection.sendall(b"".join(native.encode(push, [bytes(entry)])))

        assert closed_by_peer(connection)

    after = steady_group.status(follower)
    assert (after.ledger_end_index, after.term) == (before.ledger_end_index, before.term)


def test_a_membership_in_a_message_must_be_in_the_pushed_bytes(steady_group: NodeGroup) -> None:
    """The member has the pushed entries, and none of them contains the membership."""
    master = steady_group.master()
    follower = next(member for member in steady_group.running() if member != master)
    sender = next(member for member in steady_group.peers if member != follower)
    term = steady_group.status(follower).term
    entries = disk.pack_entries(
        [b"x"], magic=disk.NORMAL, first_index=0, term=term, pos=0, previous_chain_crc=0
    ).data
    push = AppendRequest(
        sender=sender, receiver=follower, term=term, previous_index=-1, previous_term=-1,
        first_index=0, last_index=0, entries_term=term, committed_index=-1,
        memberships=(MembershipEntry(0, Membership(("n0",))),),
    )  # fmt: skip

    with connect(steady_group, follower) as connection:
        greeting = hello(sender_id=sender, receiver_id=follower)
        connection.sendall(native.encode_hello(greeting, opaque=0))
        connection.recv(4096)
        connection.sendall(b"".join(native.encode(push, [entries])))

        assert closed_by_peer(connection)

    assert steady_group.status(follower).voters == ["n0", "n1", "n2"]


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.METADATA,
        RequestCode.APPEND,
        RequestCode.GET,
        APPEND_IDEMPOTENT,
        APPEND_BATCH,
        APPEND_IDEMPOTENT_BATCH,
    ],
)
def test_a_body_of_another_form_is_answered_and_the_connection_lives(
    steady_group: NodeGroup, code: int
) -> None:
    odd = [RemotingCommand(code=code, opaque=opaque, body=b"[") for opaque in (7, 8)]
    decoder = FrameDecoder()
    answers: list[RemotingCommand] = []

    with connect(steady_group, steady_group.master()) as connection:
        for command in odd:
            connection.sendall(frames.encode(command))
            while not (came := decoder.feed(connection.recv(65536))):
                pass
            answers += came

    assert [(answer.code, answer.opaque) for answer in answers] == [
        (SystemCode.SYSTEM_ERROR, 7),
        (SystemCode.SYSTEM_ERROR, 8),
    ]


def test_an_unknown_request_code_is_answered_as_not_supported(steady_group: NodeGroup) -> None:
    answer = ask(
        steady_group, steady_group.master(), RemotingCommand(code=51003, opaque=8, body=b"{}")
    )

    assert (answer.code, answer.opaque) == (SystemCode.REQUEST_CODE_NOT_SUPPORTED, 8)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": "other", "remote_id": "n1"}, DLedgerResponseCode.UNKNOWN_GROUP),
        ({"group": "g", "remote_id": "n9"}, DLedgerResponseCode.UNKNOWN_MEMBER),
    ],
)
def test_a_request_for_another_group_or_member_is_refused(
    steady_group: NodeGroup, fields: dict[str, str], code: DLedgerResponseCode
) -> None:
    steady_group.master()
    request = requests.AppendEntryRequest(body=b"x", **fields)  # type: ignore[arg-type]
    batch = AppendBatchRequest(bodies=[b"x", b"y"], **fields)  # type: ignore[arg-type]

    for command in (
        RemotingCommand(code=RequestCode.APPEND, opaque=1, body=request.to_json()),
        RemotingCommand(code=APPEND_BATCH, opaque=1, body=batch.to_bytes()),
    ):
        answer = ask(steady_group, "n1", command)
        assert requests.AppendEntryResponse.from_json(answer.body).code is code

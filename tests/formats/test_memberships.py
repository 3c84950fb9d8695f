"""The body of a membership entry has one form; other bytes are refused."""

import pytest

from dledger_formats.json_objects import FormatError
from dledger_formats.log import disk, memberships
from dledger_formats.log.channels import channel_of
from dledger_formats.log.memberships import MEMBERSHIP_CHANNEL, MembershipBody


@pytest.mark.parametrize(
    ("voters", "learners"),
    [
        (("n0",), ()),
        (("n0", "n1", "n2"), ("n3", "n4")),
        (tuple(sorted(f"{number:032d}" for number in range(63))), ("n0",)),
    ],
)
def test_an_encoded_membership_is_decoded_unchanged(
    voters: tuple[str, ...], learners: tuple[str, ...]
) -> None:
    body = memberships.encode(voters, learners)

    assert memberships.decode(body) == MembershipBody(voters, learners)
    assert memberships.decode(memoryview(body)) == (voters, learners)
    assert len(body) <= memberships.BODY_BYTES_MAX


def test_the_encoding_of_a_membership_stays_the_same() -> None:
    body = b'{"voters":["n0","n1","n2"],"learners":["n3"]}'

    assert memberships.encode(("n0", "n1", "n2"), ("n3",)) == body
    assert MEMBERSHIP_CHANNEL == 0x7FFF0000


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON"),
        (b"[]", "voters and learners"),
        (b'{"voters":["n0"]}', "voters and learners"),
        (b'{"voters":["n0"],"learners":[],"witnesses":[]}', "nothing else"),
        (b'{"voters":["n0"],"learners":[],"learners":[]}', "twice"),
        (b'{"voters":"n0","learners":[]}', "a list"),
        (b'{"voters":["n0",1],"learners":[]}', "not a valid id"),
        (b'{"voters":["n-0"],"learners":[]}', "not a valid id"),
        (b'{"voters":["n0\\n"],"learners":[]}', "not a valid id"),
        (b'{"voters":["n1","n0"],"learners":[]}', "sorted"),
        (b'{"voters":["n0","n0"],"learners":[]}', "sorted"),
        (b'{"voters":[],"learners":["n0"]}', "must have voters"),
        (b'{"voters":["n0"],"learners":["n0"]}', "both a voter and a learner"),
        (b'{"voters": ["n0"],"learners":[]}', "canonical form"),
        (b'{"learners":[],"voters":["n0"]}', "canonical form"),
        (b'{"voters":["n\\u0030"],"learners":[]}', "canonical form"),
        (memberships.encode(tuple(sorted(f"n{k}" for k in range(65))), ()), "more than 64 members"),
        (b" " * 2561, "at most 2560"),
    ],
)
def test_any_other_body_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        memberships.decode(body)


@pytest.mark.parametrize(
    ("magic", "channel", "expected"),
    [
        (disk.NOOP, MEMBERSHIP_CHANNEL, True),
        (disk.NORMAL, MEMBERSHIP_CHANNEL, False),
        (disk.NOOP, 0, False),
        (disk.NOOP, channel_of(1, 0), False),
        (disk.NOOP, MEMBERSHIP_CHANNEL + 1, False),
    ],
)
def test_magic_and_channel_tell_whether_an_entry_is_a_membership(
    magic: int, channel: int, expected: bool
) -> None:
    assert memberships.is_membership(magic, channel) is expected

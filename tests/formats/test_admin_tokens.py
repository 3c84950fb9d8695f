"""The file with administration tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.admin_tokens import FILE_BYTES_MAX, TOKENS_MAX, AdminTokens, TokensError
from dledger_formats.protocol.leadership_transfer import LeadershipTransferRequest
from dledger_formats.protocol.membership_change import ChangeKind, ChangeMembershipRequest

TOKENS = st.from_regex(r"[A-Za-z0-9_-]{32,60}", fullmatch=True)
FIRST, SECOND = "a" * 40, "b" * 40


@given(
    st.lists(TOKENS, min_size=1, max_size=TOKENS_MAX, unique=True),
    st.from_regex("[A-Za-z0-9-]{0,20}", fullmatch=True),
)
def test_what_is_written_is_read_back(tokens: list[str], version: str) -> None:
    written = AdminTokens(accepted=tuple(tokens), version=version)

    assert AdminTokens.parse(written.to_text().encode()) == written


@given(st.binary(max_size=200))
def test_any_bytes_are_tokens_or_a_mistake_that_shows_none_of_them(raw: bytes) -> None:
    message = ""
    try:
        tokens = AdminTokens.parse(raw)
    except TokensError as error:
        message = str(error)
    else:
        assert all(tokens.accepts(each) for each in tokens.accepted)
    words = [word for word in raw.decode("latin-1").split() if len(word) >= 20]
    assert not any(word in message for word in words)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "no token"),
        (b"# only a comment\n", "no token"),
        (b"short\n", "line 1 is not a token"),
        (f"{FIRST}\n{'c' * 300}\n".encode(), "line 2 is not a token"),
        (f"{FIRST} {SECOND}\n".encode(), "line 1"),
        ("é".encode() * 32, "ASCII"),
        (b"#" * (FILE_BYTES_MAX + 1), "more than"),
        (b"".join(b"%040d\n" % number for number in range(TOKENS_MAX + 1)), "more than"),
    ],
)
def test_a_mistake_is_named(raw: bytes, words: str) -> None:
    with pytest.raises(TokensError, match=words):
        AdminTokens.parse(raw)


@given(st.text(max_size=60))
def test_no_other_text_is_accepted(text: str) -> None:
    tokens = AdminTokens(accepted=(FIRST, SECOND))

    assert tokens.accepts(text) is (text in (FIRST, SECOND))


def test_the_first_token_is_the_one_to_send() -> None:
    assert (
        AdminTokens.parse(f"# older ones follow\n{FIRST}\n\n{SECOND}\n".encode()).current == FIRST
    )


def test_an_audit_token_belongs_to_each_token_and_tells_nothing_of_it() -> None:
    tokens = AdminTokens(accepted=(FIRST, SECOND), version="7")

    audits = tokens.for_audits()

    assert AdminTokens.parse(audits.to_text().encode()) == audits
    assert audits.version == "7"
    assert len({FIRST, SECOND, *audits.accepted}) == 4
    assert not any(map(tokens.accepts, audits.accepted))
    assert AdminTokens(accepted=(SECOND,)).for_audits().current == audits.accepted[1]
    assert AdminTokens(accepted=("x" * 32,)).for_audits().current == (
        "Wg7BGmIiRIFAlmKI8RtvE3OpXjgjQB5jF0n0wNpK5fU"
    ), "members, operator and tools of other releases compute the same"


def test_no_representation_shows_a_token() -> None:
    change = ChangeMembershipRequest(change=ChangeKind.REMOVE, member_id="n1", admin_token=FIRST)
    transfer = LeadershipTransferRequest(transferee_id="n1", admin_token=FIRST)

    for shown in (AdminTokens(accepted=(FIRST,)), change, transfer):
        assert FIRST not in f"{shown!r} {shown}"


def test_a_request_of_an_earlier_release_and_one_with_a_token_are_both_read() -> None:
    old = b'{"group":"g","remoteId":"n0","change":"REMOVE","memberId":"n1"}'
    new = ChangeMembershipRequest(change=ChangeKind.REMOVE, member_id="n1", admin_token=FIRST)

    assert ChangeMembershipRequest.from_json(old).admin_token == ""
    assert ChangeMembershipRequest.from_json(new.to_json()).admin_token == FIRST

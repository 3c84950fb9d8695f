"""When a group's administration token is made and replaced."""

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lightkube.resources.core_v1 import Secret

from dledger_formats.admin_tokens import AdminTokens
from dledger_formats.http.status import NodeStatus
from dledger_kube.objects import NOW, group, node_status
from dledger_operator.api_objects import TokenEntry, TokenPhase
from dledger_operator.behaviors.admin_tokens.group_tokens import make_token
from dledger_operator.behaviors.admin_tokens.rotation import (
    CONFIRMED_WITHIN,
    STILL_VALID,
    next_entry,
)
from dledger_operator.clients.admin_tokens import secret_view
from dledger_operator.spec.admin_token import AdminTokenSpec

UID = "group-uid"
WANTED = AdminTokenSpec()
MINUTE = timedelta(minutes=1)
FIRST, SECOND = "first-" * 7, "second-" * 7


def entry(phase: TokenPhase, *tokens: str, version: str = "5", uid: str = UID) -> TokenEntry:
    return TokenEntry(
        uid=uid, phase=phase, since=NOW, tokens=AdminTokens(accepted=tokens, version=version)
    )


def after(
    before: TokenEntry | None,
    passed: timedelta = timedelta(),
    answers: Sequence[NodeStatus | None] = (),
    wanted: AdminTokenSpec = WANTED,
) -> TokenEntry:
    return next_entry(
        before, wanted, uid=UID, now=NOW + passed, answers=answers, make_token=lambda: SECOND
    )


def accepts(version: str) -> NodeStatus:
    return node_status(demands_admin_token=True, admin_tokens_version=version)


@pytest.mark.parametrize("before", [None, entry(TokenPhase.SETTLED, FIRST, uid="deleted-group")])
def test_a_new_group_gets_a_token_of_its_own(before: TokenEntry | None) -> None:
    made = after(before)

    assert (made.uid, made.tokens.accepted) == (UID, (SECOND,))


def test_a_token_whose_record_was_lost_is_kept() -> None:
    kept = after(entry(TokenPhase.SETTLED, FIRST, uid=""))

    assert (kept.uid, kept.tokens.accepted, kept.since) == (UID, (FIRST,), NOW)


@pytest.mark.parametrize("phase", list(TokenPhase))
def test_a_time_in_the_future_keeps_a_token_no_longer(phase: TokenPhase) -> None:
    """The clock of the operator that wrote it was ahead, or somebody has edited it."""
    ahead = replace(entry(phase, FIRST), since=NOW + timedelta(days=3650))

    assert after(ahead) == replace(ahead, since=NOW)


@pytest.mark.parametrize(
    "record",
    [
        {"since": "2026-01-01T00:00:00"},
        {"since": "yesterday"},
        {"since": 7},
        {"phase": "Unheard"},
        {"uid": None, "phase": None},
        None,
    ],
)
def test_a_record_that_somebody_has_spoiled_is_begun_anew_and_the_token_is_kept(
    record: dict[str, object] | None,
) -> None:
    tokens = AdminTokens(accepted=(FIRST,), version="5")
    sound = {"uid": UID, "phase": "Settled", "since": "2026-01-01T00:00:00Z", "rotatedAt": ""}
    annotations = {"dledger.io/admin-token-flights": json.dumps(record and sound | record)}
    metadata = {"resourceVersion": "7", "annotations": annotations}
    data = {"flights": base64.b64encode(tokens.to_text().encode()).decode()}

    found = secret_view(Secret.from_dict({"metadata": metadata, "data": data})).entries["flights"]

    assert found == TokenEntry(tokens=tokens)
    begun = after(found, WANTED.rotate_after)
    assert (begun.tokens.accepted, begun.since) == ((FIRST,), NOW + WANTED.rotate_after)


def test_a_young_token_stays() -> None:
    young = entry(TokenPhase.SETTLED, FIRST)

    assert after(young, WANTED.rotate_after - MINUTE) is young


@pytest.mark.parametrize(
    ("passed", "wanted"),
    [
        (WANTED.rotate_after, WANTED),
        (MINUTE, replace(WANTED, rotated_at="2026-01-01T00:00:00Z")),
        (timedelta(days=2), replace(WANTED, rotate_after=timedelta(days=1))),
    ],
    ids=["age", "asked for", "shorter life"],
)
def test_a_second_token_is_introduced_behind_the_first(
    passed: timedelta, wanted: AdminTokenSpec
) -> None:
    introduced = after(entry(TokenPhase.SETTLED, FIRST), passed, wanted=wanted)

    assert introduced.phase is TokenPhase.INTRODUCED
    assert (introduced.tokens.accepted, introduced.tokens.version) == ((FIRST, SECOND), "6")
    assert introduced.rotated_at == wanted.rotated_at, "it is asked for once"


@pytest.mark.parametrize(
    ("answers", "replaced"),
    [
        ([accepts("5"), accepts("5")], True),
        ([accepts("5"), accepts("4")], False),
        ([accepts("5"), None], False),
        ([accepts("5"), node_status()], True),
        ([], False),
    ],
    ids=[
        "all accept it",
        "one does not",
        "one is silent",
        "one demands no token yet",
        "no pod is known yet",
    ],
)
def test_a_token_is_sent_once_every_member_accepts_it(
    answers: Sequence[NodeStatus | None], replaced: bool
) -> None:
    before = entry(TokenPhase.INTRODUCED, FIRST, SECOND)

    now = after(before, MINUTE, answers)

    assert now.tokens.current == (SECOND if replaced else FIRST)
    assert set(now.tokens.accepted) == {FIRST, SECOND}


def test_a_silent_member_holds_a_replacement_up_for_an_hour_at_most() -> None:
    before = entry(TokenPhase.INTRODUCED, FIRST, SECOND)

    assert after(before, CONFIRMED_WITHIN - MINUTE, [None]) is before
    assert after(before, CONFIRMED_WITHIN, [None]).tokens.current == SECOND


def test_the_former_token_is_valid_for_another_hour() -> None:
    before = entry(TokenPhase.REPLACED, SECOND, FIRST)

    assert after(before, STILL_VALID - MINUTE) is before
    assert after(before, STILL_VALID).tokens.accepted == (SECOND,)


def test_made_tokens_are_tokens_and_unlike_each_other() -> None:
    made = [make_token() for _ in range(100)]

    assert len(set(made)) == 100
    for each in made:
        assert AdminTokens.parse(each.encode()).current == each


@pytest.mark.parametrize("days", [0, 4000])
def test_days_out_of_range_are_refused(days: int) -> None:
    with pytest.raises(ValueError, match="rotateAfterDays"):
        group(adminToken={"rotateAfterDays": days})


LAG = st.integers(0, 50)
"""Minutes until a member has read what was written: a kubelet needs about one."""


@given(
    lags=st.lists(LAG, min_size=3, max_size=3),
    looks=st.lists(st.integers(1, 30), min_size=40, max_size=160),
    asked=st.sets(st.integers(0, 1000), max_size=5),
    silent=st.sets(st.integers(0, 159)),
)
def test_a_token_that_a_client_has_just_read_is_accepted_by_every_member_for_an_hour(
    lags: list[int], looks: list[int], asked: set[int], silent: set[int]
) -> None:
    """Members read what is written after their lag; the operator looks at any times; a client may
    use what it has read for an hour. Members that lag are asked for their version.
    """
    minute, numbers = 0, count(1)
    written: list[tuple[int, TokenEntry]] = [(0, after(None))]

    def content_at(moment: int) -> TokenEntry:
        return next(each for at, each in reversed(written) if at <= moment or at == 0)

    for number, pause in enumerate(looks):
        minute += pause
        rotations = sum(each <= minute for each in asked)
        wanted = AdminTokenSpec(rotated_at=str(rotations))
        answers = [accepts(content_at(minute - lag).tokens.version) for lag in lags]
        following = next_entry(
            written[-1][1],
            wanted,
            uid=UID,
            now=at(minute),
            answers=[None] if number in silent else answers,
            make_token=lambda: f"token-{next(numbers):034}",
        )
        if following is not written[-1][1]:
            written.append((minute, following))

    assert all(len(each.tokens.accepted) <= 2 for _, each in written)
    for read_at in range(0, minute, 7):
        token = content_at(read_at).tokens.current
        for used_at in range(read_at, min(minute, read_at + 60), 7):
            for lag in lags:
                assert content_at(used_at - lag).tokens.accepts(token), (read_at, used_at, lag)


def at(minute: int) -> datetime:
    return NOW + minute * MINUTE

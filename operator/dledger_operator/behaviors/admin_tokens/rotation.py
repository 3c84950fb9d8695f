"""Decides when a group's token is made and replaced. Pure.

    Settled      members accept one token
    Introduced   members accept a second one; clients still send the first
    Replaced     clients send the second one; members still accept the first

A member reads its tokens some time after they are written, and so does a client. So a token is
sent only once every member accepts it, and stays valid for an hour after clients could know its
successor. A silent member delays this by at most an hour; when it returns, it reads the newer
tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from dledger_formats.admin_tokens import AdminTokens
from dledger_formats.http.status import NodeStatus
from dledger_operator.api_objects import TokenEntry, TokenPhase
from dledger_operator.spec.admin_token import AdminTokenSpec

CONFIRMED_WITHIN: Final = timedelta(hours=1)
"""How long the members may take to confirm that they accept a new token."""
STILL_VALID: Final = timedelta(hours=1)
"""How long a token stays valid after clients could read its successor."""


def next_entry(
    entry: TokenEntry | None,
    wanted: AdminTokenSpec,
    *,
    uid: str,
    now: datetime,
    answers: Sequence[NodeStatus | None],
    make_token: Callable[[], str],
) -> TokenEntry:
    """Return the entry that a group should have now; `entry` itself if nothing is due.

    `uid` is the group's; `answers` holds the answer of each of its pods, None for a silent one.
    """
    if entry is None or entry.uid not in ("", uid):
        tokens = AdminTokens(accepted=(make_token(),), version="1")
        return TokenEntry(
            uid=uid,
            phase=TokenPhase.SETTLED,
            since=now,
            rotated_at=wanted.rotated_at,
            tokens=tokens,
        )
    if not entry.uid:  # an entry that lost its record: its token is kept
        return replace(entry, uid=uid, since=now, rotated_at=wanted.rotated_at)
    if entry.since > now:  # a clock that was ahead must not keep a token for longer
        return replace(entry, since=now)
    accepted, age = entry.tokens.accepted, now - entry.since
    match entry.phase:
        case TokenPhase.INTRODUCED:
            if age >= CONFIRMED_WITHIN or _all_accept(entry.tokens.version, answers):
                return _changed(entry, TokenPhase.REPLACED, tuple(reversed(accepted)), now)
        case TokenPhase.REPLACED:
            if age >= STILL_VALID:
                return _changed(entry, TokenPhase.SETTLED, accepted[:1], now)
        case TokenPhase.SETTLED:
            if age >= wanted.rotate_after or entry.rotated_at != wanted.rotated_at:
                introduced = (*accepted, make_token())
                changed = _changed(entry, TokenPhase.INTRODUCED, introduced, now)
                return replace(changed, rotated_at=wanted.rotated_at)
    return entry


def _all_accept(version: str, answers: Sequence[NodeStatus | None]) -> bool:
    """Return whether every member accepts the tokens of a version.

    A member that demands no token yet, because its pod was not replaced yet, counts as well: it
    reads the newest tokens when it starts. Without any answer the result is False: an operator that
    has just started has not listed the pods yet.
    """
    return bool(answers) and all(
        answer is not None
        and (answer.admin_tokens_version == version or not answer.demands_admin_token)
        for answer in answers
    )


def _changed(
    entry: TokenEntry, phase: TokenPhase, accepted: tuple[str, ...], now: datetime
) -> TokenEntry:
    version = entry.tokens.version
    following = str(int(version) + 1) if version.isdecimal() else "1"
    tokens = AdminTokens(accepted=accepted, version=following)
    return replace(entry, phase=phase, since=now, tokens=tokens)

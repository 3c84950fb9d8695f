"""Maintains a group's token entry in the Secret of its namespace."""

import secrets
from collections.abc import Callable
from typing import Final

from dledger_operator import names
from dledger_operator.api_objects import TokenEntry, TokenPhase, TokenSecretView
from dledger_operator.behaviors.admin_tokens.rotation import next_entry
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.clients.errors import RefusedError
from dledger_operator.problem import Problem
from dledger_operator.resources.event import NORMAL

ROTATING_INTERVAL_S: Final = 5.0
REFUSED: Final = "AdminTokenRefused"
TAKEN: Final = "AdminTokenNameTaken"
_EVENTS: Final = {
    TokenPhase.INTRODUCED: ("AdminTokenIntroduced", "members are given a new administration token"),
    TokenPhase.REPLACED: (
        "AdminTokenReplaced",
        "the new administration token is the one to send; the former one is valid for another hour",
    ),
    TokenPhase.SETTLED: ("AdminTokenExpired", "the former administration token is no longer valid"),
}


class GroupTokens:
    """The tokens of one group."""

    def __init__(
        self,
        context: Context,
        snapshot: GroupSnapshot,
        on_event: Callable[[EventNote], None],
        on_problem: Callable[[], None],
    ) -> None:
        """Create; `on_event` is called with every Event to record, and `on_problem` when the
        snapshot's `token_problem` has changed.
        """
        self._context = context
        self._snapshot = snapshot
        self._on_event = on_event
        self._on_problem = on_problem

    async def run_once(self) -> float | None:
        """Write what is due. Return the seconds until the next run; None for the usual interval."""
        before = self._snapshot.token_problem
        try:
            return await self._write_what_is_due()
        finally:
            if self._snapshot.token_problem != before:
                self._on_problem()

    async def _write_what_is_due(self) -> float | None:
        snapshot = self._snapshot
        group = snapshot.group
        if group is None or group.paused or not group.admin_token.required:
            snapshot.token_problem = None
            return None
        client = self._context.api.tokens
        try:
            found = await client.read(group.namespace)
            if found is not None and not found.is_ours:
                snapshot.token_problem = _taken(group.namespace)
                return None
            before = found.entries.get(group.name) if found else None
            answers = snapshot.answers or {}
            entry = next_entry(
                before,
                group.admin_token,
                uid=group.uid,
                now=self._context.now(),
                answers=[answers.get(pod.uid) for pod in snapshot.followed.pods],
                make_token=make_token,
            )
            is_written = (
                entry == before and found is not None and group.name in found.with_audit_tokens
            )
            if not is_written and not await self._write(found, group.namespace, entry):
                return None
        except RefusedError as error:
            snapshot.token_problem = Problem(reason=REFUSED, message=str(error))
            raise
        snapshot.token_problem = None
        if before and entry.phase is not before.phase:
            reason, message = _EVENTS[entry.phase]
            self._on_event(EventNote(severity=NORMAL, reason=reason, message=message))
        return None if entry.phase is TokenPhase.SETTLED else ROTATING_INTERVAL_S

    async def _write(
        self, found: TokenSecretView | None, namespace: str, entry: TokenEntry
    ) -> bool:
        """Write the group's entry and drop those of deleted groups. Return False if the group
        itself is gone.
        """
        api, name = self._context.api, self._snapshot.name
        groups = await api.custom_objects(names.GROUP_KIND, namespace)
        live = {each["metadata"]["name"]: each["metadata"]["uid"] for each in groups}
        if live.get(name) != entry.uid:
            return False
        entries: dict[str, TokenEntry | None] = {name: entry}
        known = set(found.entries) if found else set()
        entries |= dict.fromkeys(known - live.keys(), None)
        owners = {each: live[each] for each in (known & live.keys()) | {name}}
        await api.tokens.write(namespace, found, entries, owners)
        return True


def make_token() -> str:
    """Return a new token of 256 random bits."""
    return secrets.token_urlsafe(32)


def _taken(namespace: str) -> Problem:
    return Problem(
        reason=TAKEN,
        message=f"Secret {namespace}/{names.TOKENS_NAME} was not made by the operator, so the "
        "group gets no administration token: rename or delete that Secret",
    )

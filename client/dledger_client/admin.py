"""Group administration: metadata, membership changes and leadership transfers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dledger_client.calls.call import CHANGE_MEMBERSHIP, METADATA, TRANSFER
from dledger_client.calls.slots import TIME_LEFT_MIN_S
from dledger_client.cluster.arguments import check_seconds
from dledger_client.cluster.backoff import pause_s
from dledger_client.cluster.members import CLOSED
from dledger_client.cluster.search import IsWanted, ask_all_members
from dledger_client.errors import (
    ClientError,
    GroupUnreachableError,
    NotLeaderError,
    OutcomeUnknownError,
    RefusedError,
    last_errors,
)
from dledger_client.session import Session
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.leadership_transfer import LeadershipTransferRequest
from dledger_formats.protocol.membership_change import (
    ChangeKind,
    ChangeMembershipRequest,
    ChangeMembershipResponse,
)
from dledger_formats.protocol.requests import MetadataRequest, MetadataResponse

TRANSFER_S: Final = 5.0
"""How long a leader may take to answer a transfer, on top of the request timeout."""
TRANSFERS_MAX: Final = 3
"""Attempts of one transfer. The leader takes no appends during each, so they are few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """The group as one member describes it."""

    group: str
    leader_id: str | None
    peers: dict[str, str]
    """HOST:PORT of every member, by member id."""
    term: int
    """The term of that member; -1 from Java servers, which do not report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMembership:
    """The members of the group as its leader describes them."""

    group: str
    leader_id: str | None
    term: int
    voters: tuple[str, ...]
    learners: tuple[str, ...]
    """Members that receive entries but count in no quorum."""
    index: int
    """Index of the entry that set this membership; -1 while the initial settings apply."""
    addresses: dict[str, str] = field(default_factory=dict)
    """HOST:PORT of every member, by member id."""
    addable: dict[str, str] = field(default_factory=dict)
    """HOST:PORT of every member that may be added, by member id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAdmin:
    """Administers the group of a session."""

    session: Session
    random: Callable[[], float]
    token: str = field(repr=False)
    """The group's administration token; empty for none."""
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        if self.deadline_s is not None:
            check_seconds(self.deadline_s, "deadline_s")

    @property
    def group(self) -> str:
        """The name of the group."""
        return self.session.group

    async def metadata(self) -> GroupMetadata:
        """Ask all members for METADATA until one answers.

        Raises GroupUnreachableError if no member answers before the client's deadline.
        """
        now_s = asyncio.get_running_loop().time()
        return await self._metadata(now_s + self.session.timing.deadline_s)

    async def _metadata(self, until_s: float, is_wanted: IsWanted | None = None) -> GroupMetadata:
        """Ask all members until one returns a wanted answer; without `is_wanted`, any answer is.

        Raises GroupUnreachableError if none does before `until_s`.
        """
        self.session.check_loop()
        loop, members = asyncio.get_running_loop(), self.session.dispatcher.members
        began_s = loop.time()
        members.is_unanswered = True
        try:
            while True:
                answer = await self._ask_once(until_s, is_wanted)
                elapsed_s = loop.time() - began_s
                if isinstance(answer, RefusedError):
                    raise answer
                if isinstance(answer, MetadataResponse):
                    members.is_unanswered = False
                    if is_wanted is None or is_wanted(answer):
                        return self._described(answer)
                if self.session.dispatcher.is_closed:
                    raise GroupUnreachableError(CLOSED)
                left_s = until_s - loop.time()
                if left_s <= 0:
                    raise GroupUnreachableError(
                        f"no member of group {self.group} answered within {elapsed_s:.1f} s; "
                        + last_errors(members.problems)
                    )
                await asyncio.sleep(min(left_s, pause_s(elapsed_s, self.random)))
        finally:
            members.is_unanswered = False

    async def _ask_once(
        self, until_s: float, is_wanted: IsWanted | None
    ) -> MetadataResponse | ClientError | None:
        """Ask all members once, as `ask_all_members` does. Return None after `until_s`."""
        try:
            async with asyncio.timeout_at(until_s):
                return await ask_all_members(self.session.dispatcher.members, is_wanted)
        except TimeoutError:
            return None

    def _described(self, answer: MetadataResponse) -> GroupMetadata:
        return GroupMetadata(
            group=self.group, leader_id=answer.leader_id, peers=answer.peers, term=answer.term
        )

    async def transfer(self, transferee_id: str, term: int | None) -> GroupMetadata:
        """Transfer leadership to a member and return the group with its new leader."""
        try:
            return await self._transfer(transferee_id, term)
        finally:
            self.session.waits_for = ""

    async def _transfer(self, transferee_id: str, term: int | None) -> GroupMetadata:
        """Transfer leadership, and say meanwhile what the session waits for.

        Up to TRANSFERS_MAX attempts are made if the member did not take over in time, or if the
        group has a newer term than it reported: on a loaded machine, both are temporary.
        """
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + (self.deadline_s or self.session.timing.deadline_s)
        for attempts_left in reversed(range(TRANSFERS_MAX)):
            before = await self._metadata(until_s)
            is_outdated = self.session.dispatcher.members.is_outdated(before.term)
            if before.leader_id == transferee_id and not is_outdated:
                return before
            request = _transfer_request(before, transferee_id, term, self.token)
            attempt = f"attempt {TRANSFERS_MAX - attempts_left} of {TRANSFERS_MAX}"
            self.session.waits_for = f"{transferee_id} has not taken over yet, {attempt}"
            left_s = max(until_s - now_s(), TIME_LEFT_MIN_S)
            try:
                await self.session.ask(
                    TRANSFER, request, left_s, is_repeatable=False, answer_s=TRANSFER_S
                )
            except (RefusedError, OutcomeUnknownError) as error:
                answer = await self._ask_once(until_s, _tells_the_end_of(request))
                if isinstance(answer, MetadataResponse) and _names_successor(answer, request):
                    return self._described(answer)
                pause = pause_s(TRANSFER_S, self.random)
                may_try_again = attempts_left and now_s() + pause < until_s
                if not (may_try_again and _may_succeed_later(error, term)):
                    if isinstance(error, NotLeaderError) and before.leader_id != transferee_id:
                        raise _not_led(error, before) from error
                    raise
                await asyncio.sleep(pause)
            else:
                break
        return await self._successor(request, until_s)

    async def _successor(self, request: LeadershipTransferRequest, until_s: float) -> GroupMetadata:
        """Return the group once a member names the transferee as the leader of a newer term.

        Raises OutcomeUnknownError if none does in time, or if one names another leader, which was
        elected since.
        """
        handed_over = f"the leader handed over to {request.transferee_id}"
        try:
            after = await self._metadata(until_s, _tells_the_end_of(request))
        except ClientError as error:
            raise OutcomeUnknownError(
                f"{handed_over}, but no member has named it as the leader since"
            ) from error
        if after.leader_id != request.transferee_id:
            raise OutcomeUnknownError(
                f"{handed_over}, but {after.leader_id} is the leader of term {after.term}"
            )
        return after

    async def membership(self) -> GroupMembership:
        """Ask the leader for the voters and the learners."""
        request = MetadataRequest(group=self.group)
        answer = await self.session.ask(METADATA, request, self.deadline_s)
        assert isinstance(answer, MetadataResponse)
        return GroupMembership(
            group=self.group,
            leader_id=answer.leader_id,
            term=answer.term,
            voters=answer.voters or tuple(sorted(answer.peers)),
            learners=answer.learners,
            index=answer.membership_index,
            addresses=answer.peers,
            addable=answer.addable,
        )

    async def change_membership(self, change: ChangeKind, member_id: str) -> GroupMembership:
        """Change one member and return the membership that a majority has stored."""
        request = ChangeMembershipRequest(
            group=self.group, change=change, member_id=member_id, admin_token=self.token
        )
        answer = await self.session.ask(CHANGE_MEMBERSHIP, request, self.deadline_s)
        assert isinstance(answer, ChangeMembershipResponse)
        return GroupMembership(
            group=self.group,
            leader_id=answer.leader_id,
            term=answer.term,
            voters=answer.voters,
            learners=answer.learners,
            index=answer.index,
        )


def _not_led(error: NotLeaderError, group: GroupMetadata) -> NotLeaderError:
    """Return the error if the only server to ask does not lead and is not the transferee.

    The transferee itself answers UNKNOWN_MEMBER.
    """
    leader = group.leader_id or "unknown"
    return NotLeaderError(
        f"only the leader can transfer the leadership; the leader is {leader} ({error})",
        group.leader_id,
    )


def _names_successor(answer: MetadataResponse, request: LeadershipTransferRequest) -> bool:
    """Return whether a member names the transferee as leader, in a later or (Java) unknown term."""
    return answer.leader_id == request.transferee_id and (
        answer.term < 0 or answer.term > request.term
    )


def _tells_the_end_of(request: LeadershipTransferRequest) -> IsWanted:
    """Return a test for answers that name a leader elected by the transfer or after it."""

    def tells(answer: MetadataResponse) -> bool:
        has_leader = answer.leader_id is not None
        is_newer = has_leader and answer.term > request.term
        return is_newer or _names_successor(answer, request)

    return tells


def _may_succeed_later(error: ClientError, term: int | None) -> bool:
    """Return whether the same transfer may succeed soon; `term` is what the caller passed."""
    if not isinstance(error, RefusedError):
        return False
    return term is None and error.code in (
        DLedgerResponseCode.TAKE_LEADERSHIP_FAILED,
        DLedgerResponseCode.INCONSISTENT_TERM,
    )


def _transfer_request(
    group: GroupMetadata, transferee_id: str, term: int | None, token: str
) -> LeadershipTransferRequest:
    if transferee_id not in group.peers:
        raise RefusedError(
            DLedgerResponseCode.UNKNOWN_MEMBER,
            f"{transferee_id} is not a member of group {group.group}; "
            f"members: {', '.join(sorted(group.peers))}",
        )
    if term is None:
        term = group.term
    if term < 0:
        raise RefusedError(
            DLedgerResponseCode.INCONSISTENT_TERM,
            f"the servers of group {group.group} do not report their term (Java servers do not); "
            "specify the leader's term",
        )
    return LeadershipTransferRequest(
        group=group.group, term=term, transferee_id=transferee_id, admin_token=token
    )

"""The identity of the group, as this member knows it, and which members are strangers to it.

Groups of one name must not mix when an address passes from a member of one to a member of the
other. The identity comes from the settings or from the member's folder. A member that has none
learns it in one of three ways, once:

- It founds the identity when it leads and is the only member that its group ever had or has left.
  No other member can found one: it would have to lead a group of its own.
- It takes the identity of the leader that it follows, once its log has an entry of that leader's
  term: then the leader has found that their logs match.
- As a leader, it takes the identity of a follower that holds all its committed entries.

Until then it trusts any member of a group with its group's name, as earlier releases do.
"""

import logging
import uuid
from collections.abc import Callable
from dataclasses import replace

from dledger_formats.http.status import identities_differ
from dledger_node.errors import ForeignFolderError, StoreError
from dledger_node.raft.core import Raft
from dledger_node.store.small_files.group_file import FolderOwner, GroupFile, foreign_log

logger = logging.getLogger(__name__)


class GroupIdentity:
    """The identity of one member's group; `value` is empty while the member knows none."""

    def __init__(
        self,
        file: GroupFile,
        core: Raft,
        *,
        cut_links: Callable[[str, str], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`cut_links` closes the links that a peer has opened; it takes the peer and a reason."""
        self._file = file
        self._core = core
        self._cut_links = cut_links
        self._fail = fail
        self._heard: dict[str, str] = {}
        """The identities in the peers' HELLOs, by peer, while this member has none."""

    @property
    def value(self) -> str:
        """The identity; empty if this member knows none."""
        return self._file.owner.identity

    def is_foreign(self, identity: str) -> bool:
        """Return whether a request that names this identity is meant for another group."""
        return identities_differ(identity, self.value)

    def is_strange(self, identity: str) -> bool:
        """Return whether a member with this identity does not belong to this group."""
        return (self._file.owner.adopted and not identity) or self.is_foreign(identity)

    def refusal(self, peer_id: str, identity: str) -> str | None:
        """Return why a peer with this identity may not open a link; None if it may."""
        if not self.is_strange(identity):
            return None
        return (
            f"{peer_id} belongs to another group named {self._file.owner.group}: its identity is "
            f"{identity or 'unknown'}, this member's is {self.value}; check the addresses of the "
            "peers and their DLEDGER_GROUP_IDENTITY"
        )

    def hear(self, peer_id: str, identity: str) -> None:
        """Remember the identity of a peer whose link was accepted."""
        if identity and not self.value:
            self._heard[peer_id] = identity

    def renounce(self, foreign_index: int) -> None:
        """Record that this entry of the folder is not the group's, and stop; see `divergence`.

        The record is durable, so that no later start of the member votes with another group's log.
        """
        owner = replace(self._file.owner, foreign_index=foreign_index)
        try:
            self._file.save(owner)
        except StoreError as error:
            self._fail(error)
        else:
            self._fail(ForeignFolderError(foreign_log(self._file.folder, owner)))

    def on_turn(self, committed_index: int) -> None:
        """Learn the identity if this member has none and can be sure of one now."""
        if self.value:
            return
        core = self._core
        if core.leads and len(core.membership.members) == 1 and self._is_the_only_member():
            self._learn(str(uuid.uuid4()), "made the identity")
        elif self._heard and (peer_id := self._peer_with_this_log()):
            self._learn(self._heard[peer_id], f"learned from {peer_id} the identity")

    def _peer_with_this_log(self) -> str | None:
        """Return a peer that has named its identity, and whose log is known to match this one."""
        core = self._core
        if core.master:
            matches = core.match_indexes().items()
            level = [peer_id for peer_id, index in matches if index >= core.committed_index]
        else:
            follows = not core.leads and core.ledger_end_term == core.term
            level = [core.leader_id] if follows and core.leader_id is not None else []
        return next((peer_id for peer_id in level if peer_id in self._heard), None)

    def _is_the_only_member(self) -> bool:
        possible = self._core.memberships.possible(self._core.committed_index)
        return all(each.members == (self._core.config.self_id,) for each in possible)

    def _learn(self, identity: str, how: str) -> None:
        """Record an identity, before anything depends on it, and cut the links of strangers."""
        try:
            self._file.save(FolderOwner(group=self._file.owner.group, identity=identity))
        except StoreError as error:
            self._fail(error)
            return
        logger.info("%s %s of the group: %s", self._core.config.self_id, how, identity)
        for peer_id, named in self._heard.items():
            if self.is_strange(named):
                self._cut_links(peer_id, self.refusal(peer_id, named) or "")
        self._heard.clear()

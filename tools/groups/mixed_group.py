"""`MixedGroup`: members of two releases in one group."""

import os
import subprocess
from pathlib import Path
from typing import IO

from tools.groups.node_group import NodeGroup
from tools.groups.releases import Release


class MixedGroup(NodeGroup):
    """A `NodeGroup` in which each member runs either this release or an earlier one."""

    def __init__(
        self,
        folder: Path,
        members: int = 3,
        *,
        addable: int = 0,
        earlier: Release,
        **settings: object,
    ) -> None:
        """All members begin with the earlier release."""
        super().__init__(folder, members, addable=addable, **settings)
        self.earlier = earlier
        self.members_of_earlier = {*self.peers, *self.addable}
        """The members that run the earlier release from their next start on."""

    def swap_release(self, member: str) -> None:
        """Let a member run the other release from its next start on."""
        self.members_of_earlier ^= {member}

    def _spawn(self, member: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        if member not in self.members_of_earlier:
            return super()._spawn(member, log)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DLEDGER_")}
        environment |= self.settings(member).to_environment()
        environment = self.earlier.environment_of(environment)
        # Bytecode in the cache's folder would count as damage of the entry.
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        return subprocess.Popen(self.command(member), env=environment, stdout=log, stderr=log)

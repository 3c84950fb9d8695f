"""The Leases of an API server, in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime

from dledger_operator.api_objects import LeaseView
from dledger_operator.clients.errors import ConflictError


class LeaseStore:
    """Answers each request at once; a subclass can override `request` to inject faults."""

    def __init__(self) -> None:
        self.leases: dict[tuple[str, str], LeaseView] = {}
        self._version = 0

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Surround the moment at which a request has its effect."""
        yield

    async def get(self, namespace: str, name: str) -> LeaseView | None:
        """Get a Lease; None if it does not exist."""
        async with self.request():
            return self.leases.get((namespace, name))

    async def create(
        self, namespace: str, name: str, *, holder: str, duration_s: int, now: datetime
    ) -> LeaseView:
        """Create a Lease. Raises ConflictError if it exists."""
        made = LeaseView(
            namespace=namespace,
            name=name,
            resource_version="",
            holder=holder,
            duration_s=duration_s,
            transitions=0,
        )
        return await self._write(made)

    async def renew(
        self, lease: LeaseView, *, holder: str, duration_s: int, now: datetime
    ) -> LeaseView:
        """Write that `holder` holds a Lease. Raises ConflictError if it has changed."""
        passes = bool(holder) and holder != lease.holder
        transitions = lease.transitions + passes
        changed = replace(lease, holder=holder, duration_s=duration_s, transitions=transitions)
        return await self._write(changed)

    async def _write(self, lease: LeaseView) -> LeaseView:
        key = (lease.namespace, lease.name)
        async with self.request():
            found = self.leases.get(key)
            if (found.resource_version if found else "") != lease.resource_version:
                raise ConflictError("changed")
            self._version += 1
            written = self.leases[key] = replace(lease, resource_version=str(self._version))
        return written

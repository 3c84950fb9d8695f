"""Finds the version of a group's object that counts: the newest, never a deleted one."""

from collections.abc import Mapping
from typing import Any, Protocol

from dledger_operator import names
from dledger_operator.clients.errors import GroupGoneError, NotFoundError


class GroupApi(Protocol):
    """The API request of this module."""

    async def group(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Get a DLedgerGroup. Raises NotFoundError if it does not exist."""


def generation_of(body: Mapping[str, Any]) -> int:
    """Return the generation of an object's spec."""
    return int(body["metadata"].get("generation", 1))


async def newest(api: GroupApi, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `body`, which comes from a watch, or the live object if its generation is newer.

    Another operator may have applied the newer one. Raises GroupGoneError if the group was deleted.
    """
    metadata = body["metadata"]
    what = f"{names.GROUP_KIND} {metadata['namespace']}/{metadata['name']}"
    try:
        live = await api.group(metadata["namespace"], metadata["name"])
    except NotFoundError as error:
        raise GroupGoneError(str(error)) from error
    if live["metadata"]["uid"] != metadata["uid"] or live["metadata"].get("deletionTimestamp"):
        raise GroupGoneError(f"{what} was deleted")
    if generation_of(live) <= generation_of(body):
        return body
    return {**live, "status": body.get("status") or {}}

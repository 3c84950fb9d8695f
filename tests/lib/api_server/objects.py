"""Custom resources as a user would send them, to be checked or stored by a real API server."""

import contextlib
import uuid
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from api_server.client import API, ApiServer, RefusedError, wait_until

Object: TypeAlias = dict[str, Any]

PLURALS: Final = {"DLedgerGroup": "dledgergroups", "DLedgerAudit": "dledgeraudits"}
# What kubectl asks for: a field that the schema does not know is an error, not silently dropped.
STRICT: Final = "fieldValidation=Strict"
DRY_RUN: Final = f"dryRun=All&{STRICT}"
# What the server answers about a kind whose CRD it has just been given.
NOT_YET: Final = (
    HTTPStatus.NOT_FOUND,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
MERGE_PATCH: Final = "application/merge-patch+json"


def custom(kind: str, spec: Object, name: str = "", namespace: str = "default") -> Object:
    """An object of one of our kinds; without a name it gets one that nobody else uses."""
    return {
        "apiVersion": "dledger.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name or f"t{uuid.uuid4().hex[:12]}", "namespace": namespace},
        "spec": spec,
    }


def group(name: str = "", **spec: Any) -> Object:
    """A DLedgerGroup with room for segments of any size, unless `storage` says otherwise."""
    return custom("DLedgerGroup", {"storage": {"size": "30Gi"}, **spec}, name)


def audit(name: str = "", **spec: Any) -> Object:
    """A DLedgerAudit of a group called flights."""
    return custom("DLedgerAudit", {"groupRef": {"name": "flights"}, **spec}, name)


def check(server: ApiServer, sent: Object) -> Object:
    """What the server would store; RefusedError when it would not. Nothing is stored."""
    checked: Object = server.request("POST", f"{_collection(sent)}?{DRY_RUN}", sent)
    return checked


def check_change(server: ApiServer, stored: Object, change: Object) -> Object:
    """What the server would make of a merge patch; RefusedError when nothing."""
    checked: Object = server.request(
        "PATCH", f"{path(stored)}?{DRY_RUN}", change, content_type=MERGE_PATCH
    )
    return checked


@contextlib.contextmanager
def stored(server: ApiServer, sent: Object) -> Iterator[Object]:
    """Store an object for as long as the block lasts."""
    made: Object = server.request("POST", f"{_collection(sent)}?{STRICT}", sent)
    try:
        yield made
    finally:
        server.request("DELETE", path(made))


def wait_until_served(server: ApiServer) -> None:
    """Wait until the server takes objects of every kind, for which it needs a while after a CRD."""
    for plural in PLURALS.values():
        wait_until(f"{plural} are served", partial(_is_served, server, plural))


def _is_served(server: ApiServer, plural: str) -> bool:
    try:
        server.request("GET", f"{API}/{plural}")
    except RefusedError as error:
        if error.code in NOT_YET:
            return False
        raise
    return True


def path(named: Object) -> str:
    """The URL path of one object."""
    return f"{_collection(named)}/{named['metadata']['name']}"


def _collection(item: Object) -> str:
    return f"{API}/namespaces/{item['metadata']['namespace']}/{PLURALS[item['kind']]}"

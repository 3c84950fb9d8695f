"""Custom resources as a user would send them, for validation or storage by a real API server."""

import contextlib
import uuid
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from api_server.client import API, ApiServer, RefusedError, wait_until

Object: TypeAlias = dict[str, Any]

PLURALS: Final = {
    "DLedgerGroup": "dledgergroups",
    "DLedgerAudit": "dledgeraudits",
    "DLedgerSwitchover": "dledgerswitchovers",
    "DLedgerReplace": "dledgerreplaces",
}
# As kubectl does: an unknown field is an error instead of being silently dropped.
STRICT: Final = "fieldValidation=Strict"
DRY_RUN: Final = f"dryRun=All&{STRICT}"
# Responses for a kind whose CRD was only just created.
NOT_YET: Final = (
    HTTPStatus.NOT_FOUND,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
MERGE_PATCH: Final = "application/merge-patch+json"


def custom(kind: str, spec: Object, name: str = "", namespace: str = "default") -> Object:
    """Return an object of one of our kinds; without `name`, its name is unique."""
    return {
        "apiVersion": "dledger.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name or f"t{uuid.uuid4().hex[:12]}", "namespace": namespace},
        "spec": spec,
    }


def group(name: str = "", **spec: Any) -> Object:
    """Return a DLedgerGroup, by default with enough storage for segments of any size."""
    return custom("DLedgerGroup", {"storage": {"size": "30Gi"}, **spec}, name)


def audit(name: str = "", **spec: Any) -> Object:
    """Return a DLedgerAudit of a group called flights."""
    return custom("DLedgerAudit", {"groupRef": {"name": "flights"}, **spec}, name)


def switchover(name: str = "", **spec: Any) -> Object:
    """Return a DLedgerSwitchover of a group called flights to n2."""
    return custom(
        "DLedgerSwitchover", {"groupRef": {"name": "flights"}, "target": "n2", **spec}, name
    )


def replace(name: str = "", **spec: Any) -> Object:
    """Return a DLedgerReplace of n2 of a group called flights."""
    return custom("DLedgerReplace", {"groupRef": {"name": "flights"}, "member": "n2", **spec}, name)


def check(server: ApiServer, sent: Object) -> Object:
    """Return what the server would store, without storing it; raises RefusedError."""
    checked: Object = server.request("POST", f"{_collection(sent)}?{DRY_RUN}", sent)
    return checked


def check_change(server: ApiServer, stored: Object, change: Object) -> Object:
    """Return the result of a merge patch, without storing it; raises RefusedError."""
    checked: Object = server.request(
        "PATCH", f"{path(stored)}?{DRY_RUN}", change, content_type=MERGE_PATCH
    )
    return checked


@contextlib.contextmanager
def stored(server: ApiServer, sent: Object) -> Iterator[Object]:
    """Store an object until the block ends."""
    made: Object = server.request("POST", f"{_collection(sent)}?{STRICT}", sent)
    try:
        yield made
    finally:
        server.request("DELETE", path(made))


def wait_until_served(server: ApiServer) -> None:
    """Wait until the server serves every kind, which takes a while after the CRDs are created."""
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
    """Return the URL path of an object."""
    return f"{_collection(named)}/{named['metadata']['name']}"


def _collection(item: Object) -> str:
    return f"{API}/namespaces/{item['metadata']['namespace']}/{PLURALS[item['kind']]}"

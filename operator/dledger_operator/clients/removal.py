"""Removes exactly the object that was read: a member's pod, as a disruption budget permits it, or a
StatefulSet, with or without its pods.
"""

from typing import Any, Final

from lightkube import ApiError, AsyncClient
from lightkube.core.generic_client import BasicRequest
from lightkube.models.meta_v1 import DeleteOptions, ObjectMeta, Preconditions
from lightkube.resources.core_v1 import Pod

from dledger_operator.api_objects import PodView, StatefulSetView
from dledger_operator.clients import connection
from dledger_operator.clients.errors import EvictionRefusedError

BUDGET_CAUSE: Final = "DisruptionBudget"
"""The cause in the API server's answer (policy/v1) if a budget does not permit an eviction."""
TOO_MANY_REQUESTS: Final = 429
SERVER_ERROR: Final = 500


async def remove_pod(client: AsyncClient, pod: PodView) -> None:
    """Evict a ready pod; delete one that is not ready.

    Between the decision to remove a pod and its removal, the pod may be replaced or change. So both
    requests carry the uid and the version that were read as preconditions. Raises ConflictError,
    NotFoundError, and EvictionRefusedError for an eviction that a budget does not permit.

    A ready pod is evicted, because a node may be drained at the same moment: the API server
    counts both removals against the group's budget and refuses the second one. A pod that is not
    ready does not serve, so its removal takes nothing from the budget, but with several such pods
    the budget permits no eviction at all. A deletion replaces them nevertheless: a corrected spec
    must reach a member that fails.
    """
    known = Preconditions(uid=pod.uid, resourceVersion=pod.resource_version)
    if pod.ready:
        await _evict(client, pod, known)
    else:
        await _delete(client, pod, known)


async def _evict(client: AsyncClient, pod: PodView, known: Preconditions) -> None:
    eviction = Pod.Eviction(
        metadata=ObjectMeta(name=pod.name, namespace=pod.namespace),
        deleteOptions=DeleteOptions(preconditions=known),
    )
    what = f"evict pod {pod.namespace}/{pod.name}"
    with connection.translated(what):
        try:
            await client.create(eviction, pod.name, namespace=pod.namespace)
        except ApiError as error:
            if not _is_refused_by_budget(error):
                raise
            raise EvictionRefusedError(f"{what}: {_details(error)}") from error


def _is_refused_by_budget(error: ApiError) -> bool:
    """Tell a budget's refusal from an overloaded server, which also answers 429.

    The server answers 500 if several budgets select the pod.
    """
    causes = (error.status.details.causes if error.status.details else None) or []
    listed = any(cause.reason == BUDGET_CAUSE for cause in causes)
    several = "more than one PodDisruptionBudget" in (error.status.message or "")
    return (error.status.code == TOO_MANY_REQUESTS and listed) or (
        error.status.code == SERVER_ERROR and several
    )


def _details(error: ApiError) -> str:
    causes = (error.status.details.causes if error.status.details else None) or []
    return " ".join([error.status.message or "", *(each.message or "" for each in causes)]).strip()


async def remove_stateful_set(
    client: AsyncClient, stateful_set: StatefulSetView, policy: str
) -> None:
    """Delete the StatefulSet that was read. `policy` says what becomes of its pods: `Orphan` leaves
    them, `Foreground` deletes them first.

    Raises ConflictError if it has changed since it was read, NotFoundError if it is gone.
    """
    known = Preconditions(uid=stateful_set.uid, resourceVersion=stateful_set.resource_version)
    where = f"{stateful_set.namespace}/statefulsets/{stateful_set.name}"
    what = f"delete StatefulSet {stateful_set.namespace}/{stateful_set.name}"
    await delete(client, f"apis/apps/v1/namespaces/{where}", known, what, policy=policy)


async def _delete(client: AsyncClient, pod: PodView, known: Preconditions) -> None:
    url = f"api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    await delete(client, url, known, f"delete pod {pod.namespace}/{pod.name}")


async def delete(
    client: AsyncClient, url: str, known: Preconditions, what: str, policy: str | None = None
) -> None:
    """Delete the object at `url`, if the preconditions `known` hold.

    The library's own `delete` has no parameter for the body of the request.
    """
    options = DeleteOptions(
        apiVersion="v1", kind="DeleteOptions", preconditions=known, propagationPolicy=policy
    )
    request = BasicRequest(
        method="DELETE",
        url=url,
        params={},
        response_type=None,
        data=options.to_dict(),
        headers={"Content-Type": "application/json"},
    )
    sender: Any = client._client
    with connection.translated(what):
        answer = await sender.send(sender.build_adapter_request(request))
        sender.handle_response("delete", answer, request)

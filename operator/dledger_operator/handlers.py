"""The kopf handlers: each one forwards a watch event to the workers.

The handlers store no state in objects and need no finalizer, so a group can be deleted even while
no operator runs; Kubernetes garbage-collects the group's children. The work itself runs in one task
per group, so one group never waits for another.

The handlers are coroutines although they await nothing, because kopf runs plain functions in
threads.
"""

from typing import Any

import kopf

from dledger_operator import names

GROUP_CHILD = {names.GROUP_LABEL: kopf.PRESENT}
AUDIT_CHILD = {names.AUDIT_LABEL: kopf.PRESENT}


@kopf.on.event(names.API_GROUP, names.API_VERSION, names.GROUPS_PLURAL)
async def group_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Start, update or stop the group's worker."""
    memo.watches.take(names.GROUP_KIND, event)
    if event["type"] == "DELETED":
        memo.workers.group_deleted(event["object"])
    else:
        memo.workers.group_changed(event["object"])


@kopf.on.event(names.API_GROUP, names.API_VERSION, names.AUDITS_PLURAL)
async def audit_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Start, update or stop the audit's worker."""
    memo.watches.take(names.AUDIT_KIND, event)
    if event["type"] == "DELETED":
        memo.workers.audit_deleted(event["object"])
    else:
        memo.workers.audit_changed(event["object"])


@kopf.on.event(names.API_GROUP, names.API_VERSION, names.SWITCHOVERS_PLURAL)
async def switchover_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Start, update or stop the switchover's worker."""
    memo.watches.take(names.SWITCHOVER_KIND, event)
    if event["type"] == "DELETED":
        memo.workers.switchover_deleted(event["object"])
    else:
        memo.workers.switchover_changed(event["object"])


@kopf.on.event(names.API_GROUP, names.API_VERSION, names.REPLACES_PLURAL)
async def replacement_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Start, update or stop the replacement's worker."""
    memo.watches.take(names.REPLACE_KIND, event)
    if event["type"] == "DELETED":
        memo.workers.replacement_deleted(event["object"])
    else:
        memo.workers.replacement_changed(event["object"])


@kopf.on.event("", "v1", "pods", labels=GROUP_CHILD)
async def pod_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Check the leader and the role labels: a pod was created, changed or deleted."""
    memo.workers.pod_changed(event["type"], event["object"])


@kopf.on.event("", "v1", "persistentvolumeclaims", labels=GROUP_CHILD)
async def claim_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Check the volume claims: one was created, changed or deleted."""
    memo.workers.claim_changed(event["object"])


@kopf.on.event("discovery.k8s.io", "v1", "endpointslices", labels=GROUP_CHILD)
async def endpoint_slice_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Check the endpoints of the master Service; its slices carry the Service's labels."""
    memo.workers.endpoints_changed(event["object"])


@kopf.on.event("", "v1", "services", labels=GROUP_CHILD)
@kopf.on.event("", "v1", "configmaps", labels=GROUP_CHILD)
@kopf.on.event("", "v1", "serviceaccounts", labels=GROUP_CHILD)
@kopf.on.event("policy", "v1", "poddisruptionbudgets", labels=GROUP_CHILD)
@kopf.on.event("apps", "v1", "statefulsets", labels=GROUP_CHILD)
@kopf.on.event("networking.k8s.io", "v1", "networkpolicies", labels=GROUP_CHILD)
async def child_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Reconcile the group: another client may have changed or deleted a child."""
    memo.workers.child_changed(event["type"], event["object"])


def watch_nodes() -> None:
    """Watch Nodes too, which needs a cluster-wide permission."""
    kopf.on.event("", "v1", "nodes")(node_event)


async def node_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Check where leaders run: somebody may be draining the node."""
    memo.workers.node_changed(event["type"], event["object"])


@kopf.on.event("batch", "v1", "jobs", labels=AUDIT_CHILD)
async def job_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Check the progress of the audit."""
    memo.workers.job_changed(event["object"])


@kopf.on.cleanup()
async def stop_workers(memo: kopf.Memo, **_: Any) -> None:
    """Stop all workers before the connections are closed, and give up the Lease."""
    await memo.stop()

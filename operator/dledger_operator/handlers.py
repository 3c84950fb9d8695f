"""Every reaction to the API, on one screen.

All are plain watch handlers: they keep no state in objects and need no finalizer, so that a group
can be deleted at once, even while no operator runs; Kubernetes deletes what the group owns. They
only pass the news on. The work is done in the group's own task, so that none waits for another's.

They are coroutines although they await nothing: kopf runs other functions in threads.
"""

from typing import Any

import kopf

from dledger_operator import names

OF_A_GROUP = {names.GROUP_LABEL: kopf.PRESENT}
OF_AN_AUDIT = {names.AUDIT_LABEL: kopf.PRESENT}


@kopf.on.event(names.API_GROUP, names.API_VERSION, names.GROUPS_PLURAL)
async def group_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Start, tell or stop the group's worker."""
    if event["type"] == "DELETED":
        memo.workers.group_deleted(event["object"])
    else:
        memo.workers.group_changed(event["object"])


@kopf.on.event(names.API_GROUP, names.API_VERSION, names.AUDITS_PLURAL)
async def audit_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Start or stop the audit's worker."""
    if event["type"] == "DELETED":
        memo.workers.audit_deleted(event["object"])
    else:
        memo.workers.audit_changed(event["object"])


@kopf.on.event("", "v1", "pods", labels=OF_A_GROUP)
async def pod_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Look at who leads: a pod came, went or was touched."""
    memo.workers.pod_changed(event["type"], event["object"])


@kopf.on.event("discovery.k8s.io", "v1", "endpointslices", labels=OF_A_GROUP)
async def endpoint_slice_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Look at where the master Service leads; its slices carry the Service's labels."""
    memo.workers.endpoints_changed(event["object"])


@kopf.on.event("", "v1", "services", labels=OF_A_GROUP)
@kopf.on.event("apps", "v1", "statefulsets", labels=OF_A_GROUP)
async def child_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Apply the children again: somebody may have changed or deleted one."""
    memo.workers.child_changed(event["type"], event["object"])


@kopf.on.event("batch", "v1", "jobs", labels=OF_AN_AUDIT)
async def job_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Look how far the audit is."""
    memo.workers.job_changed(event["object"])


@kopf.on.probe(id="workers")
async def count_workers(memo: kopf.Memo, **_: Any) -> dict[str, int]:
    """Answer the liveness probe; a worker that ended by a mistake makes it fail."""
    counts: dict[str, int] = memo.workers.check()
    return counts


@kopf.on.cleanup()
async def stop_workers(memo: kopf.Memo, **_: Any) -> None:
    """End all work before the connections are closed."""
    await memo.workers.stop()

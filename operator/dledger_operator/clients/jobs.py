"""The Jobs of audits, and their pods."""

from collections.abc import Collection
from typing import Any, TypeAlias

from lightkube.models.meta_v1 import Preconditions
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Pod, ServiceAccount
from lightkube.types import PatchType

from dledger_operator import names
from dledger_operator.api_objects import JobPodView, JobView
from dledger_operator.clients import connection, removal, translate
from dledger_operator.clients.custom_objects import CustomObjectClient
from dledger_operator.clients.errors import NotFoundError

Labels: TypeAlias = dict[str, Any]


class JobClient(CustomObjectClient):
    """Reads Jobs. Each request raises KubeError if it fails."""

    async def job(self, namespace: str, name: str) -> JobView | None:
        """Get a Job; None if it does not exist."""
        try:
            with connection.translated(f"get Job {namespace}/{name}"):
                return translate.job_view(await self._client.get(Job, name, namespace=namespace))
        except NotFoundError:
            return None

    async def job_pods(self, namespace: str, job: str, uid: str) -> list[JobPodView]:
        """List the pods that this Job has created. Other pods may carry its label."""
        with connection.translated(f"list the pods of Job {namespace}/{job}"):
            pods = self._client.list(Pod, namespace=namespace, labels={names.JOB_NAME_LABEL: job})
            views = [translate.job_pod_view(pod) async for pod in pods]
        return [pod for pod in views if pod.controller_uid == uid]

    async def end_tries(self, namespace: str, name: str, uid: str) -> None:
        """Let a Job that was read make no further pod: one of its pods has failed. Kubernetes ends
        such a Job, and its pods that run.

        Raises ConflictError if another Job has its name now, NotFoundError if it is gone.
        """
        patch = {"metadata": {"uid": uid}, "spec": {"backoffLimit": 0}}
        with connection.translated(f"end the tries of Job {namespace}/{name}"):
            await self._client.patch(
                Job, name, patch, namespace=namespace, patch_type=PatchType.MERGE
            )

    async def executor_pods(
        self, namespace: str, audit: str, drivers: Collection[str]
    ) -> list[JobPodView]:
        """List the pods of an audit's executors that the pods with these uids have created."""
        labels: Labels = {names.AUDIT_LABEL: audit, names.COMPONENT_LABEL: names.EXECUTOR_COMPONENT}
        with connection.translated(f"list the executors of {names.AUDIT_KIND} {namespace}/{audit}"):
            pods = self._client.list(Pod, namespace=namespace, labels=labels)
            views = [translate.job_pod_view(pod) async for pod in pods]
        return [pod for pod in views if pod.controller_uid in drivers]

    async def delete_executor(self, namespace: str, pod: JobPodView) -> None:
        """Delete the executor's pod that was read.

        Raises ConflictError if another pod has its name now, NotFoundError if it is gone.
        """
        url = f"api/v1/namespaces/{namespace}/pods/{pod.name}"
        what = f"delete pod {namespace}/{pod.name}"
        await removal.delete(self._client, url, Preconditions(uid=pod.uid), what)

    async def pull_secrets_of_default(self, namespace: str) -> list[str]:
        """Return the names of the pull secrets of the namespace's default ServiceAccount."""
        try:
            with connection.translated(f"get ServiceAccount {namespace}/default"):
                found = await self._client.get(ServiceAccount, "default", namespace=namespace)
        except NotFoundError:
            return []
        return [each.name for each in found.imagePullSecrets or [] if each.name]

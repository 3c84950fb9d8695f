"""The Jobs of audits, and their pods."""

from typing import Any, TypeAlias

from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Pod

from dledger_operator import names
from dledger_operator.api_objects import JobPodView, JobView
from dledger_operator.clients import connection, translate
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

    async def job_pods(self, namespace: str, job: str) -> list[JobPodView]:
        """List the pods of a Job."""
        with connection.translated(f"list the pods of Job {namespace}/{job}"):
            pods = self._client.list(Pod, namespace=namespace, labels={names.JOB_NAME_LABEL: job})
            return [translate.job_pod_view(pod) async for pod in pods]

    async def executor_pods(self, namespace: str, audit: str) -> list[JobPodView]:
        """List the pods of an audit's executors."""
        labels: Labels = {names.AUDIT_LABEL: audit, names.COMPONENT_LABEL: names.EXECUTOR_COMPONENT}
        with connection.translated(f"list the executors of {names.AUDIT_KIND} {namespace}/{audit}"):
            pods = self._client.list(Pod, namespace=namespace, labels=labels)
            return [translate.job_pod_view(pod) async for pod in pods]

"""Asks the API server why there are no executors: from inside a pod, with its own account."""

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds its token, and the certificate of the API server."""
TIMEOUT_S: Final = 10.0
LENGTH_MAX: Final = 400
LASTING: Final = frozenset({400, 403, 404, 422})
"""Status codes that the API server would return again for the same request."""
UNKNOWN: Final = "nothing is known of a cause; see the log of the driver"


def reason_of(pods: list[Mapping[str, Any]], refusal: str) -> str:
    """Return why no executor runs: what is wrong with a pod, or why a new one is refused. Pure."""
    for pod in pods:
        if trouble := _trouble(pod.get("status") or {}):
            return f"pod {pod['metadata']['name']}: {trouble}"[:LENGTH_MAX]
    if refusal:
        return f"a pod is refused: {refusal}"[:LENGTH_MAX]
    return UNKNOWN


def _trouble(status: Mapping[str, Any]) -> str:
    if status.get("phase") == "Failed" and status.get("reason"):
        return f"{status['reason']}: {status.get('message', '')}".rstrip(": ")
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason')}: {condition.get('message')}"
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting")
        if ended:
            return f"{ended.get('reason')}: exit code {ended.get('exitCode')}"
        if waiting and waiting.get("reason") not in (None, "ContainerCreating"):
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return ""


class ApiServer:
    """The pods of the driver's namespace."""

    def __init__(self, namespace: str, api: str, account: Path) -> None:
        self._url = f"{api}/api/v1/namespaces/{namespace}/pods"
        self._account = account

    def why(self, application: str, pod: Mapping[str, Any]) -> str:
        """Return why an application has no executors; `pod` is the pod of one."""
        try:
            return reason_of(self._pods(application), self.refusal(pod))
        except (OSError, ValueError) as error:
            return f"the API server was asked for the cause: {error}"[:LENGTH_MAX]

    def _pods(self, application: str) -> list[Mapping[str, Any]]:
        selector = urllib.parse.urlencode(
            {"labelSelector": f"spark-app-selector={application},spark-role=executor"}
        )
        found: list[Mapping[str, Any]] = self._ask(f"{self._url}?{selector}")["items"]
        return found

    def refusal(self, pod: Mapping[str, Any], *, lasting: bool = False) -> str:
        """Return why the API server would refuse a pod, or ""; the request is a dry run.

        With `lasting`, only the status codes in LASTING count as a refusal.
        """
        metadata = {**pod["metadata"], "generateName": "dledger-audit-"}
        try:
            self._ask(f"{self._url}?dryRun=All", {**pod, "metadata": metadata})
        except urllib.error.HTTPError as error:
            if lasting and error.code not in LASTING:
                return ""
            answer = json.loads(error.read())
            return str(answer.get("message", error))
        return ""

    def _ask(self, url: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = {
            "Authorization": f"Bearer {(self._account / 'token').read_text().strip()}",
            "Content-Type": "application/json",
        }
        sent = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(url, data=sent, headers=headers)  # noqa: S310
        trusted = ssl.create_default_context(cafile=self._account / "ca.crt")
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=trusted) as answer:  # noqa: S310
            return json.load(answer)

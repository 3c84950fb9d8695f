"""Spark's settings for executors in pods, or below a Spark master. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from dledger_audit import workers
from dledger_formats.quantities import quantity
from pyspark_dledger import pace as read_pace
from pyspark_dledger import patience as read_patience

POD_NAME: Final = "DLEDGER_AUDIT_POD_NAME"
POD_NAMESPACE: Final = "DLEDGER_AUDIT_POD_NAMESPACE"
POD_IP: Final = "DLEDGER_AUDIT_POD_IP"
ACCOUNT: Final = "DLEDGER_AUDIT_ACCOUNT"
"""The environment variable with the folder of the pod's token; without it, the token is where
Kubernetes puts it.
"""
EXECUTOR_POD: Final = "DLEDGER_AUDIT_EXECUTOR_POD"
"""The environment variable with an executor's pod, as JSON: what Spark does not set itself."""

DRIVER_PORT: Final = 7078
BLOCK_MANAGER_PORT: Final = 7079
"""The ports are fixed, so that NetworkPolicies can name them."""

HEAP_BYTES: Final = 512 * workers.MIB
"""Spark refuses less than 450 MiB, and that is enough for digests."""
EXECUTOR_BYTES: Final = HEAP_BYTES + 250 * workers.MIB
"""An executor without its Python workers: the heap, and what the JVM needs besides."""
TASKS_MIN: Final = 2
"""A task waits for its member most of the time, so one CPU has time for two."""
MEMORY_DEFAULT: Final = 2048 * workers.MIB
FAILURES_MAX: Final = 1_000_000
"""More executors than can be lost in an hour."""


class ExecutorPodError(ValueError):
    """The pod of an executor cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one executor gets of its pod's resources."""

    cores: int
    """Tasks that it runs at once."""
    memory_bytes: int
    cpu_request: str
    cpu_limit: str
    """The CPUs, as Kubernetes writes them; an empty text for no limit."""


def count(tasks: int, cores: int, most: int) -> int:
    """Return how many executors a pass with so many tasks keeps busy, at least one."""
    return max(1, min(most, math.ceil(tasks / cores)))


def container_of(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the container in which the executor runs. Raises ExecutorPodError without one."""
    try:
        container: Mapping[str, Any] = pod["spec"]["containers"][0]
        return {"name": container["name"], "image": container["image"], **container}
    except (KeyError, IndexError, TypeError) as error:
        raise ExecutorPodError(f"{EXECUTOR_POD} is no pod with a container and an image") from error


def share_of(pod: Mapping[str, Any]) -> Share:
    """Divide the resources of the pod between Spark's heap and the Python workers."""
    resources = container_of(pod).get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    memory = limits.get("memory") or requests.get("memory")
    memory_bytes = int(_number(memory)) if memory else MEMORY_DEFAULT
    cpu_limit = str(limits.get("cpu") or "")
    cpu_request = str(requests.get("cpu") or cpu_limit or "1")
    fit = max(1, (memory_bytes - EXECUTOR_BYTES) // workers.WORKER_BYTES)
    return Share(
        cores=min(fit, max(TASKS_MIN, math.ceil(_number(cpu_limit or cpu_request)))),
        memory_bytes=max(memory_bytes, EXECUTOR_BYTES),
        cpu_request=cpu_request,
        cpu_limit=cpu_limit,
    )


def _number(value: object) -> Fraction:
    try:
        return quantity(str(value))
    except ValueError as error:
        raise ExecutorPodError(str(error)) from error


def on_any_cluster(executors: int) -> dict[str, str]:
    """Return the settings for this number of executors, wherever they run.

    `watching` waits for executors, and ends work without any, since Spark does not report why.
    """
    return {
        "spark.executor.instances": str(executors),
        "spark.scheduler.minRegisteredResourcesRatio": "0",
        # Spark would end the JVM after a few lost executors, without a reason to report.
        "spark.executor.maxNumFailures": str(FAILURES_MAX),
        "spark.executor.failuresValidityInterval": "1h",
    }


def below_a_master(executors: int) -> dict[str, str]:
    """Return the settings for executors with one task each, as many as the master has room for."""
    return on_any_cluster(executors) | {
        "spark.executor.memory": f"{HEAP_BYTES // workers.MIB}m",
        "spark.executor.cores": "1",
        "spark.cores.max": str(executors),
    }


def in_pods(
    executors: int,
    pod: Mapping[str, Any],
    *,
    pod_file: str,
    environment: Mapping[str, str],
    java_options: str,
) -> dict[str, str]:
    """Return the settings for executors in pods, with this process in the driver's pod.

    The pods belong to the driver's pod, and Kubernetes deletes them with it. All connections are
    encrypted with a secret of this run alone, and a process without the secret cannot connect.
    """
    container, share = container_of(pod), share_of(pod)
    settings = on_any_cluster(executors) | {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
        "spark.blockManager.port": str(BLOCK_MANAGER_PORT),
        "spark.executor.cores": str(share.cores),
        "spark.executor.memory": f"{HEAP_BYTES // workers.MIB}m",
        "spark.executor.memoryOverhead": f"{(share.memory_bytes - HEAP_BYTES) // workers.MIB}m",
        "spark.executor.extraJavaOptions": java_options,
        "spark.kubernetes.container.image": container["image"],
        "spark.kubernetes.container.image.pullPolicy": container.get(
            "imagePullPolicy", "IfNotPresent"
        ),
        # The account has permissions on pods alone.
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.executor.podTemplateContainerName": container["name"],
        "spark.kubernetes.executor.podTemplateFile": pod_file,
        "spark.kubernetes.executor.request.cores": share.cpu_request,
    }
    if share.cpu_limit:
        settings["spark.kubernetes.executor.limit.cores"] = share.cpu_limit
    if address := environment.get(POD_IP):
        host = f"[{address}]" if ":" in address else address
        settings |= {"spark.driver.host": host, "spark.driver.bindAddress": host}
    if namespace := environment.get(POD_NAMESPACE):
        settings["spark.kubernetes.namespace"] = namespace
    if name := environment.get(POD_NAME):
        settings["spark.kubernetes.driver.pod.name"] = name
    return settings


def paced(pace: str | None, executors: int, folder: str) -> dict[str, str]:
    """Return the setting by which the executors divide the rate of each member between them.

    Each executor needs a folder of its own, also if several are on one machine. Below a Spark
    master each has its own working folder, so there the path is relative. The driver reads members
    only while no executor does.
    """
    if not pace:
        return {}
    rate = max(1, int(pace.partition(":")[0]) // executors)
    return {f"spark.executorEnv.{read_pace.VARIABLE}": f"{rate}:{folder}"}


def patient(patience: str | None, folder: str) -> dict[str, str]:
    """Return the setting by which each executor bounds the silence of members as the driver does.

    The folder is chosen as for `paced`.
    """
    if not patience:
        return {}
    silent_s_max = patience.partition(":")[0]
    return {f"spark.executorEnv.{read_patience.VARIABLE}": f"{silent_s_max}:{folder}"}

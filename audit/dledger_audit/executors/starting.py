"""Starts Spark for a command: in this process, below a Spark master, or with executors in pods."""

import argparse
import json
import os
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext

from dledger_audit import workers
from dledger_audit.executors import masters, settings
from dledger_audit.executors.reasons import ACCOUNT, UNKNOWN, ApiServer
from dledger_audit.executors.watching import NoExecutorsError, wait_for_all, watched
from dledger_audit.progress import starting_spark
from dledger_audit.session import EXECUTOR_JAVA_OPTIONS, session
from pyspark_dledger import bearer, pace, patience


@contextmanager
def started(options: argparse.Namespace, tasks: int | None = None) -> Iterator[SparkContext]:
    """Start Spark as the options say, and stop it after the block.

    At most as many executors start as `tasks` tasks keep busy (None if that is not known). Raises
    NoExecutorsError if there are none for `options.executors_within` seconds, or one is refused.
    """
    master = options.master or workers.master()
    if masters.is_local(master):
        with session(master, starting=starting_spark()) as context:
            yield context
        return
    pod = executor_pod() if master.startswith(masters.KUBERNETES) else None
    server = _api_server(master) if pod else None
    # Spark would ask for a refused pod again until the patience is over.
    _check_admitted(server, pod)
    cores = settings.share_of(pod).cores if pod else 1
    number = options.executors
    if tasks is not None:
        number = settings.count(tasks, cores, options.executors)
    with ExitStack() as stack:
        if pod is None:
            chosen = settings.below_a_master(number)
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dledger-executors-"))
            file = Path(folder) / "pod.json"
            file.write_text(json.dumps(pod))
            chosen = settings.in_pods(
                number,
                pod,
                pod_file=str(file),
                environment=os.environ,
                java_options=" ".join(EXECUTOR_JAVA_OPTIONS),
            )
        shared = f"dledger-reads-{uuid.uuid4().hex}"
        if pod is not None:  # a pod's own folder is read-only
            shared = f"{tempfile.gettempdir()}/{shared}"
        chosen |= settings.paced(os.environ.get(pace.VARIABLE), number, f"{shared}-pace")
        chosen |= settings.patient(os.environ.get(patience.VARIABLE), f"{shared}-patience")
        if (token_file := os.environ.get(bearer.VARIABLE)) is not None:
            chosen[f"spark.executorEnv.{bearer.VARIABLE}"] = token_file
        chosen |= dict(options.conf)
        try:
            context = stack.enter_context(session(master, chosen, starting=starting_spark()))
        except Py4JJavaError as error:
            _check_admitted(server, pod, error)
            raise
        why = _why(server, pod, context.applicationId)
        stack.enter_context(watched(context, options.executors_within, why))
        running = wait_for_all(context, number, options.executors_within)
        sys.stderr.write(f"dledger-audit: {running} of {number} executors of Spark run\n")
        yield context


def executor_pod() -> Mapping[str, Any]:
    """Return the pod of an executor. Raises ExecutorPodError."""
    try:
        pod = json.loads(os.environ.get(settings.EXECUTOR_POD, ""))
    except ValueError as error:
        raise settings.ExecutorPodError(
            f"{settings.EXECUTOR_POD} must be the pod of an executor, as JSON: {error}"
        ) from error
    settings.container_of(pod)
    return dict(pod)


def _api_server(master: str) -> ApiServer | None:
    """Return the API server of this pod; None outside of a pod."""
    namespace = os.environ.get(settings.POD_NAMESPACE)
    account = Path(os.environ.get(settings.ACCOUNT, ACCOUNT))
    if not namespace or not account.is_dir():
        return None
    return ApiServer(namespace, master.removeprefix(masters.KUBERNETES), account)


def _check_admitted(
    server: ApiServer | None, pod: Mapping[str, Any] | None, error: Exception | None = None
) -> None:
    """Raise NoExecutorsError if the API server refuses a pod; ignore one that does not answer."""
    if server is None or pod is None:
        return
    try:
        refusal = server.refusal(pod, lasting=True)
    except (OSError, ValueError):
        return
    if refusal:
        raise NoExecutorsError(f"an executor's pod is refused: {refusal}") from error


def _why(
    server: ApiServer | None, pod: Mapping[str, Any] | None, application: str
) -> Callable[[], str]:
    if pod is None:
        return lambda: "the Spark master gave none; see its page"
    if server is None:
        return lambda: UNKNOWN
    return lambda: server.why(application, pod)

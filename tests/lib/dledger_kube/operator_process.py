"""The operator as a subprocess."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self

from dledger_kube.operator_account import RELEASE, audit_driver_role, lease_name
from tools.groups.ports import free_ports

WAIT_S = 60.0
_ports = free_ports()


class OperatorProcess:
    """`dledger-operator` for one namespace; the end of its block kills it."""

    def __init__(
        self,
        kubeconfig: Path,
        namespace: str,
        folder: Path,
        *,
        release: str = RELEASE,
        identity: str = "operator-0",
    ) -> None:
        self._metrics_port, self._health_port = next(_ports), next(_ports)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            # The same source tree as the tests, wherever the installed package points to.
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "KUBECONFIG": str(kubeconfig),
            "DLEDGER_OPERATOR_NODE_IMAGE": "dledger-node:1",
            "DLEDGER_OPERATOR_AUDIT_IMAGE": "dledger-audit:1",
            "DLEDGER_OPERATOR_AUDIT_DRIVER_ROLE": audit_driver_role(namespace, release),
            "DLEDGER_OPERATOR_WATCH_NAMESPACES": namespace,
            "DLEDGER_OPERATOR_LEASE_NAMESPACE": namespace,
            "DLEDGER_OPERATOR_LEASE_NAME": lease_name(release),
            "DLEDGER_OPERATOR_IDENTITY": identity,
            "DLEDGER_OPERATOR_METRICS_PORT": str(self._metrics_port),
            "DLEDGER_OPERATOR_HEALTH_PORT": str(self._health_port),
        }
        self._log = folder / f"{identity}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start the process."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill the process; print its log after an error."""
        if self._process is not None:
            self.kill()
        if error is not None:
            print(self.log()[-5000:], file=sys.stderr)

    def start(self) -> None:
        """Start the process again after `kill` or `stop`."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dledger_operator.main"],
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> int:
        """Send SIGTERM, as Kubernetes does; return the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait until the process ends; return its exit code."""
        assert self._process is not None
        code = self._process.wait(timeout=WAIT_S)
        self._process = None
        return code

    def log(self) -> str:
        """Return the log."""
        return self._log.read_text(errors="replace")

    def metrics(self) -> str:
        """Return the answer of `/metrics`."""
        return self._get(self._metrics_port, "/metrics")

    def health(self) -> str:
        """Return the answer of `/healthz`."""
        return self._get(self._health_port, "/healthz")

    def is_ready(self) -> bool:
        """Return whether `/readyz` is answered with 200."""
        try:
            return bool(self._get(self._health_port, "/readyz"))
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            return False

    @staticmethod
    def _get(port: int, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            text: str = answer.read().decode()
            return text

"""Start etcd and an API server, and kill them afterwards."""

import contextlib
import json
import secrets
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from api_server.client import ApiServer, RefusedError, certificate
from tools.groups.ports import free_ports

READY_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05
PROBE_SECONDS: Final = 2.0
PORT_ATTEMPTS: Final = 3
LOG_CHARACTERS_SHOWN: Final = 2000
# Objects that the server creates after it has started to listen.
MADE_AT_START: Final = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/api/v1/namespaces/default",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/admin",
)
# etcd's syntax for a Unix socket: a file in its working folder. Sockets avoid conflicts over two
# ports.
ETCD_CLIENT_SOCKET: Final = "unix://client:0"
ETCD_PEER_SOCKET: Final = "unix://peer:0"


class ServerStartError(Exception):
    """A program ended or did not serve in time; the message ends with its log."""


@contextlib.contextmanager
def running(programs: Path) -> Iterator[ApiServer]:
    """Run etcd and an API server in a temporary folder until the block ends."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="api-server-")))
        token = write_credentials(folder)
        stack.enter_context(child("etcd", etcd_command(programs), folder))
        server = start_api_server(programs, folder, token, stack)
        write_kubeconfig(server)
        yield server


def start_api_server(
    programs: Path, folder: Path, token: str, stack: contextlib.ExitStack
) -> ApiServer:
    """Start the API server and wait until it serves.

    Another process may take the port before the server binds it. A server that ends early is
    therefore started again with a different port.
    """
    for attempt in range(1, PORT_ATTEMPTS + 1):
        server = ApiServer(programs=programs, folder=folder, port=next(free_ports()), token=token)
        process = stack.enter_context(child("kube-apiserver", api_server_command(server), folder))
        try:
            wait_ready(server, process)
        except ServerStartError:
            if process.poll() is None or attempt == PORT_ATTEMPTS:
                raise
        else:
            return server
    raise AssertionError("the last attempt returns or raises")


def wait_ready(server: ApiServer, process: "subprocess.Popen[bytes]") -> None:
    """Wait until the server is ready; raises ServerStartError if it ends or takes too long."""
    deadline = time.monotonic() + READY_SECONDS
    while not is_ready(server):
        if process.poll() is not None:
            raise ServerStartError(f"kube-apiserver ended\n{log_end(server.folder)}")
        if time.monotonic() > deadline:
            raise ServerStartError(
                f"kube-apiserver is not ready after {READY_SECONDS:g} s\n{log_end(server.folder)}"
            )
        time.sleep(POLL_SECONDS)


def is_ready(server: ApiServer) -> bool:
    """Return whether the server answers and has created its initial objects."""
    if not certificate(server.folder).exists():
        return False
    try:
        for path in MADE_AT_START:
            server.request("GET", path, timeout_seconds=PROBE_SECONDS)
    except (OSError, RefusedError):
        return False
    return True


@contextlib.contextmanager
def child(
    name: str, command: Sequence[str | Path], folder: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program until the block or this process ends, for whatever reason."""
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        # Its state is temporary, so no clean shutdown is needed.
        process.kill()
        process.wait()


def etcd_command(programs: Path) -> list[str | Path]:
    """Return the command line of an etcd with one member that does not sync its writes."""
    return [
        programs / "etcd",
        "--data-dir=etcd",
        "--log-level=warn",
        "--unsafe-no-fsync",
        f"--listen-client-urls={ETCD_CLIENT_SOCKET}",
        f"--advertise-client-urls={ETCD_CLIENT_SOCKET}",
        f"--listen-peer-urls={ETCD_PEER_SOCKET}",
        f"--initial-advertise-peer-urls={ETCD_PEER_SOCKET}",
        f"--initial-cluster=default={ETCD_PEER_SOCKET}",
    ]


def api_server_command(server: ApiServer) -> list[str | Path]:
    """Return the command line of an API server on loopback with RBAC and default admission."""
    return [
        server.programs / "kube-apiserver",
        f"--etcd-servers={ETCD_CLIENT_SOCKET}",
        "--bind-address=127.0.0.1",
        f"--secure-port={server.port}",
        # A loopback address must not be advertised; this one is reserved by RFC 5737.
        "--advertise-address=192.0.2.1",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=198.19.0.0/24",
        "--cert-dir=certificates",
        "--token-auth-file=tokens.csv",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-key-file=service-accounts.key",
        "--service-account-signing-key-file=service-accounts.key",
    ]


def write_credentials(folder: Path) -> str:
    """Create the service account key and the administrator's token; return the token."""
    openssl = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout"]
    subprocess.run([*openssl, "-out", folder / "service-accounts.key"], check=True)
    token = secrets.token_hex(16)
    (folder / "tokens.csv").write_text(f'{token},administrator,1,"system:masters"\n')
    return token


def write_kubeconfig(server: ApiServer) -> None:
    """Write the administrator's kubeconfig; JSON is YAML too."""
    cluster = {
        "server": f"https://127.0.0.1:{server.port}",
        "certificate-authority": str(certificate(server.folder)),
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": server.token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    server.kubeconfig.write_text(json.dumps(content))
    server.kubeconfig.chmod(0o600)


def log_end(folder: Path) -> str:
    """Return the ends of both programs' logs, for an error message."""
    return "\n".join(
        f"{log.name}: {log.read_text(errors='replace')[-LOG_CHARACTERS_SHOWN:]}"
        for log in sorted(folder.glob("*.log"))
    )

"""`dledger-operator` that cannot start: one line says why, and names the setting or the file."""

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools.groups.ports import free_ports

PROGRAM = "import sys; from dledger_operator.console_script import main; sys.exit(main())"
PORTS = free_ports()
NO_CERTIFICATE = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority: /nowhere}}]
"""


def started(
    *arguments: str, kubeconfig: Path | str = "/nowhere"
) -> subprocess.CompletedProcess[str]:
    others = {key: value for key, value in os.environ.items() if not key.startswith("DLEDGER_")}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, "--node-image=a", "--audit-image=b", *arguments],
        env=others | {"KUBECONFIG": str(kubeconfig)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@contextmanager
def waiting(kubeconfig: Path) -> Iterator[str]:
    """Start an operator, and yield the first line that it logs."""
    ports = [f"--metrics-port={next(PORTS)}", f"--health-port={next(PORTS)}"]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "--node-image=a", "--audit-image=b", *ports],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)}, stderr=subprocess.PIPE, text=True,
    ) as operator:  # fmt: skip
        assert operator.stderr is not None
        try:
            told, _, _ = select.select([operator.stderr], [], [], 60)
            yield operator.stderr.readline() if told else ""
        finally:
            operator.kill()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "is no kubeconfig"),
        ("[]", "is no kubeconfig"),
        ("", "is no kubeconfig"),
        ("clusters: 7\n", "is no kubeconfig"),
        (NO_CERTIFICATE, "cannot read the certificates or keys"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_named_in_one_line(
    tmp_path: Path, content: str, told: str
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(content)

    done = started(kubeconfig=file)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert told in done.stderr
    assert str(file) in done.stderr


@pytest.mark.parametrize(
    ("setting", "other"), [("metrics-port", "health-port"), ("health-port", "metrics-port")]
)
def test_a_port_that_is_in_use_is_named_with_its_setting(
    tmp_path: Path, setting: str, other: str
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(NO_CERTIFICATE.replace("certificate-authority: /nowhere", ""))
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        free = f"--{other}={next(free_ports())}"
        done = started(f"--{setting}={port}", free, kubeconfig=file)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    variable = f"DLEDGER_OPERATOR_{setting.upper().replace('-', '_')}"
    assert f"cannot listen on port {port}: Address already in use; see {variable}" in done.stderr


def test_a_server_that_does_not_answer_is_named_while_it_is_waited_for(tmp_path: Path) -> None:
    """The first attempt fails after five seconds only."""
    file = tmp_path / "kubeconfig"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        file.write_text(
            NO_CERTIFICATE.replace(", certificate-authority: /nowhere", "").replace(
                "https://127.0.0.1:1", server
            )
        )
        with waiting(file) as line:
            assert f": the API server at {server} has not answered yet\n" in line


def test_a_server_that_cannot_be_reached_is_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(NO_CERTIFICATE.replace(", certificate-authority: /nowhere", ""))
    with waiting(file) as line:
        assert "the API server at https://127.0.0.1:1: UnavailableError: " in line
        assert line.endswith("; will try again\n")

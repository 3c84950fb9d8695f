"""Ctrl-C (SIGINT) while a program starts: it ends at once, without a traceback."""

import os
import signal
import subprocess
import sys

import pytest

# Sends SIGINT to itself when a module is about to be imported. Background processes of a shell
# ignore SIGINT, and so do their children.
START = """
import os, signal, sys
from importlib.metadata import entry_points

class Interrupting:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.{handler})
name, module = sys.argv[1:3]
sys.argv[:] = [name, *sys.argv[3:]]
[one] = entry_points(group="console_scripts", name=name)
sys.meta_path.insert(0, Interrupting)
sys.exit(one.load()())
"""
MODULES = {
    "dledger": [
        "asyncio",
        "msgspec",
        "uvloop",
        "dledger_client.errors",
        "dledger_client.cli",
        "dledger_client.commands.tail",
    ],
    "dledger-node": ["dledger_formats.console", "dledger_node.main", "uvloop"],
    "dledger-broker": ["dledger_formats.console", "dledger_broker.main", "uvloop"],
    "dledger-operator": ["dledger_operator.config", "dledger_operator.main", "kopf"],
    "dledger-audit": ["dledger_audit.arguments", "numpy", "pyspark", "dledger_audit.audit"],
}
# Prints which modules a program imports before it says what Ctrl-C does.
BEFORE = """
import os, sys
import dledger_formats.interrupts
before = set(sys.modules)
__import__(sys.argv[1] + ".console_script")
print(*sorted(set(sys.modules) - before))
"""
ARGUMENTS = {
    "dledger": ["tail"],
    "dledger-operator": ["--node-image=a", "--audit-image=b"],
    "dledger-audit": ["--group=g", "--member=n0=http://h:1"],
}


def interrupted(
    program: str, module: str, *arguments: str, handler: str = "default_int_handler"
) -> subprocess.CompletedProcess[str]:
    """Run a program that gets SIGINT when it imports a module."""
    return subprocess.run(
        [sys.executable, "-c", START.format(handler=handler), program, module, *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("program", "module"),
    [(program, module) for program, modules in MODULES.items() for module in modules],
)
def test_ctrl_c_while_a_program_imports_a_module_ends_it_in_silence(
    program: str, module: str
) -> None:
    done = interrupted(program, module, *ARGUMENTS.get(program, []))

    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_a_background_job_that_ignores_ctrl_c_ignores_it_while_it_starts() -> None:
    done = interrupted("dledger-node", "uvloop", handler="SIG_IGN")

    assert done.returncode == 2, "a setting is missing"
    assert done.stderr.startswith("dledger-node: ")


@pytest.mark.parametrize(
    "package",
    ["dledger_client", "dledger_node", "dledger_broker", "dledger_operator", "dledger_audit"],
)
def test_a_program_imports_little_before_it_says_what_ctrl_c_does(package: str) -> None:
    """Ctrl-C leads to a traceback until then: nothing catches it yet."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", BEFORE, package],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    imported = done.stdout.split()

    assert f"{package}.console_script" in imported
    assert not [name for name in imported if name.partition(".")[0] != package]

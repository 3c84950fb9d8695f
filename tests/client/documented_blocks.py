"""The fenced blocks of README and docs, and why some of their commands are not run by tests.

A comment above a block, such as `<!-- run on a local group -->`, says how a test runs it. EXEMPT
has every other block of shell commands.
"""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
FENCE = re.compile(
    r"(?:^ *<!-- run (?P<where>[^\n]*) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)
RUN_ON_A_LOCAL_GROUP: Final = "on a local group"
RUN_ON_A_STOPPED_MEMBER: Final = "on a stopped member"
RUN_ON_A_SURVIVOR: Final = "on a survivor"
RUN_BETWEEN_TWO_GROUPS: Final = "between two groups"
RUN_AS_A_LOCAL_GROUP: Final = "as a local group"
RUN_WITH_SPARK: Final = "with Spark on a local group"
RUN_AS_ROOT: Final = "as root"
RUN: Final = frozenset({
    RUN_ON_A_LOCAL_GROUP, RUN_ON_A_STOPPED_MEMBER, RUN_ON_A_SURVIVOR, RUN_BETWEEN_TWO_GROUPS,
    RUN_AS_A_LOCAL_GROUP, RUN_WITH_SPARK, RUN_AS_ROOT,
})  # fmt: skip
"""How tests run blocks of shell commands."""

CLUSTER: Final = "needs a cluster; tests/e2e does the same with the cluster's API"
CLASS_DATA: Final = "takes a minute; tests/audit/test_class_data.py runs the same program"
DOCKER: Final = "needs Docker and a registry"
INSTALLS: Final = "downloads packages, and needs the network"
LONG: Final = "takes minutes, and would measure the machine of the tests or test again"
MQADMIN: Final = "needs a program of RocketMQ, which the tests do not build"
SPARK_MASTER: Final = "needs a Spark master of this name; tests/audit/test_spark_master.py has one"
EXEMPT: Final[dict[str, dict[str, list[str]]]] = {
    CLASS_DATA: {
        "docs/audit.md": ["python -m dledger_audit.make_class_data"],
    },
    INSTALLS: {
        "README.md": ["python3 -m"],
        "docs/interoperability.md": ["python -m"],
        "docs/spark.md": ["pip install"],
    },
    CLUSTER: {
        "README.md": ["make demo", "helm install", "echo hello", "kubectl apply"],
        "docs/audit.md": ["kubectl logs"],
        "docs/broker.md": ["kubectl apply"],
        "docs/operations/audits.md": ["kubectl apply", "kubectl get"],
        "docs/operations/brokers.md": ["kubectl port-forward"],
        "docs/operations/changes.md": [
            'kubectl patch dlg flights --type merge -p \'{"spec": {"image":',
            "kubectl get",
            "kubectl --namespace",
            'kubectl patch dlg flights --type merge -p \'{"spec": {"log":',
        ],
        "docs/operations/members.md": [
            "kubectl apply -f examples/flights-switchover.yaml",
            "kubectl drain",
            "kubectl apply -f examples/flights-replace.yaml",
            "kubectl scale",
            "kubectl patch",
        ],
        "docs/operations/recovery.md": ["kubectl annotate"],
        "docs/operations/security.md": [
            "kubectl get secret admin-tokens.dledger.io -o jsonpath='{.data.flights}'",
            "kubectl get secret admin-tokens.dledger.io -o jsonpath='{.data.flights_audit}'",
            "kubectl patch",
        ],
        "docs/operations/volumes.md": ["kubectl patch"],
        "docs/operations.md": ["kubectl get"],
    },
    LONG: {
        "README.md": ["make test"],
        "docs/benchmarks/appends.md": ["make bench"],
        "docs/benchmarks/audit-and-compaction.md": [
            "python -m",
            ".venv/bin/python -m",
            "PYTHONPATH=tests/lib .venv/bin/python",
            "# as",
        ],
        "docs/benchmarks/broker-failover.md": [
            "make bench-rocketmq-failover ",
            "make bench-rocketmq-failover-java",
            ".venv/bin/python -m bench.rocketmq_failover",
            ".venv/bin/python -m pytest tests/e2e/test_broker_changes.py --rounds",
            ".venv/bin/python -m pytest tests/e2e/test_broker.py",
            '.venv/bin/python -m pytest tests/e2e/test_broker_changes.py -k "operator_and_leader',
            ".venv/bin/python -m pytest tests/e2e/test_broker_changes.py -k test_rolls",
            "PYTHONPATH=tests/lib .venv/bin/python",
        ],
        "docs/benchmarks/broker.md": [
            ".venv/bin/python -m bench.rocketmq_java",
            ".venv/bin/python -m bench.rocketmq_send",
            ".venv/bin/python -m bench.rocketmq_doors",
            ".venv/bin/python -m bench.rocketmq_consumers",
            ".venv/bin/python -m bench.broker_state",
        ],
        "docs/benchmarks/client.md": [
            "make bench-client",
            ".venv/bin/python -m bench.append",
            ".venv/bin/python -m bench.export",
        ],
        "docs/benchmarks/event-loop.md": [".venv/bin/python -m"],
        "docs/benchmarks/failover.md": [
            "make bench-failover",
            ".venv/bin/python -m bench.failover",
            ".venv/bin/python -m pytest",
        ],
        "docs/benchmarks/idle.md": ["make bench-idle", ".venv/bin/python -m pytest"],
        "docs/benchmarks/java.md": ["make bench-java"],
        "docs/benchmarks/operator.md": [
            "make bench-operator",
            ".venv/bin/python -m",
            "PYTHONPATH=tests/lib .venv/bin/python",
        ],
        "docs/benchmarks/peers.md": ["make bench-peers"],
        "docs/benchmarks/planned-changes.md": [
            ".venv/bin/python -m pytest tests/e2e -k",
            ".venv/bin/python -m pytest tests/e2e/test_growing_volumes.py",
        ],
        "docs/benchmarks/reads.md": [
            ".venv/bin/python -m bench.read",
            ".venv/bin/python -m bench.tails",
        ],
        "docs/benchmarks/robustness.md": [
            "make fuzz",
            ".venv/bin/python -m pytest -s tests/node/test_floods.py",
            ".venv/bin/python -m pytest -s -m",
            "make soak",
            ".venv/bin/python -m bench.retention",
        ],
        "docs/benchmarks/store.md": [".venv/bin/python -m"],
        "docs/simulator.md": ["make sim"],
    },
    DOCKER: {
        "README.md": ["REGISTRY=registry.example.com/dledger"],
    },
    MQADMIN: {
        "docs/operations/brokers.md": [
            "export NAMESRV_ADDR=orders-broker:9876",
            "mqadmin updateTopic",
        ],
    },
    SPARK_MASTER: {
        "docs/spark.md": ["dledger-audit --group"],
    },
}
"""By the reason and the page: how the first line of each block begins that no test runs."""


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    """The path of the page in the repository."""
    language: str
    text: str
    where: str
    """How a test runs the block; empty if none does."""

    @property
    def first_line(self) -> str:
        """The first line without its indent, which names the block in its page."""
        return self.text.strip().partition("\n")[0]


def blocks(language: str | None = None) -> Iterator[Block]:
    """Yield the blocks of all pages, or those of a language."""
    for page in PAGES:
        for found in FENCE.finditer(page.read_text()):
            block = Block(
                page=str(page.relative_to(ROOT)),
                language=found["language"],
                text=found["text"],
                where=found["where"] or "",
            )
            if language in (None, block.language):
                yield block


def run_by_tests(where: str) -> dict[str, str]:
    """Return by page what is run in this way: its blocks, one after another."""
    found: dict[str, str] = {}
    for block in blocks():
        if block.where == where:
            name = Path(block.page).name
            found[name] = found.get(name, "") + textwrap.dedent(block.text)
    return found

"""`make demo`: append 336,776 records, kill the leader midway, and prove that nothing was lost.

`python -m tools.demo down` stops the demo's cluster and deletes its state.
"""

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any, Final

from tools import deployment
from tools.demo import flights
from tools.deployment import ROOT, Deployment
from tools.local_cluster.cluster import Cluster
from tools.local_cluster.errors import LocalClusterError

CLUSTER_NAME: Final = "demo"
NAMESPACE: Final = "demo"
GROUP: Final = "flights"
AUDIT: Final = "flights-1"
FOLDER: Final = ROOT / "build" / "demo"
IN_FLIGHT: Final = 1000
KILL_AFTER: Final = flights.RECORDS // 3


def main(arguments: list[str]) -> int:
    """Run the demo, or stop its cluster."""
    if arguments == ["down"]:
        Cluster(CLUSTER_NAME).down(purge=True)
        return 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        run(deployment.deploy(CLUSTER_NAME))
    except (LocalClusterError, deployment.CommandError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def run(deployed: Deployment) -> None:
    """Run all steps, from creating the group to its audit."""
    kubernetes = deployed.kubernetes
    say("A group of three members")
    clean_slate(deployed)
    shown(deployed, "apply", f"--filename={ROOT / 'examples' / 'flights.yaml'}")
    shown(deployed, "wait", "--for=condition=Ready", f"dlg/{GROUP}", "--timeout=180s")
    shown(deployed, "get", "dlg", GROUP)
    deployed.start_client(NAMESPACE)

    say(f"{flights.RECORDS:,} records through the Service {GROUP}-master")
    records = FOLDER / "flights.jsonl"
    flights.write(records)
    outcomes = append_and_kill_the_leader(deployed, records)

    say("After the loss of the leader")
    shown(deployed, "get", "dlg", GROUP)
    summary = outcomes.summary
    print(
        f"  acknowledged            {summary['acknowledged']:>9,}\n"
        f"  unknown                 {summary['unknown']:>9,}\n"
        f"  longest write gap       {summary['longestGapMs']:>9,.0f} ms\n"
        f"  appends per second      {summary['appendsPerSecond']:>9,.0f}"
    )
    verify(deployed, records, outcomes)

    say("The operator's leader metrics")
    print(leader_metrics(deployed))

    say("A Spark audit of the three logs")
    shown(deployed, "apply", f"--filename={ROOT / 'examples' / 'flights-audit.yaml'}")
    shown(deployed, "wait", "--for=condition=Complete", f"dla/{AUDIT}", "--timeout=600s")
    shown(deployed, "get", "dla", AUDIT)
    verdict = kubernetes.get("dla", AUDIT, f"--namespace={NAMESPACE}")["status"]["verdict"]
    if verdict != "Sound":
        raise deployment.CommandError(f"the audit's verdict is {verdict}")
    print(farewell(deployed))


class Outcomes:
    """The outcome of each record, from the output of `dledger append`."""

    def __init__(self) -> None:
        self.index_by_number: dict[int, int] = {}
        self.summary: dict[str, Any] = {}

    def read(self, stream: IO[bytes], path: Path) -> None:
        """Read lines until the stream ends; write a copy to a file."""
        with path.open("wb") as copy:
            for line in stream:
                copy.write(line)
                outcome = json.loads(line)
                if outcome.get("outcome") == "acknowledged":
                    self.index_by_number[outcome["number"]] = outcome["index"]
                elif "summary" in outcome:
                    self.summary = outcome["summary"]


def clean_slate(deployed: Deployment) -> None:
    """Create an empty namespace; first delete that of an earlier demo."""
    kubernetes = deployed.kubernetes
    kubernetes.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=180s")
    kubernetes.kubectl("create", "namespace", NAMESPACE)
    kubernetes.kubectl(
        "label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted"
    )


def append_and_kill_the_leader(deployed: Deployment, records: Path) -> Outcomes:
    """Append every record; delete the leader's pod once a third is acknowledged."""
    command = deployment.client_command(
        NAMESPACE, GROUP, "append", "-", f"--in-flight={IN_FLIGHT}", "--at-least-once",
        "--output=json", "--progress",
    )  # fmt: skip
    print(f"$ dledger {' '.join(command[command.index('append') :])}", flush=True)
    outcomes = Outcomes()
    with records.open("rb") as lines:
        process = deployed.kubernetes.start(*command, stdin=lines, stdout=subprocess.PIPE)
        assert process.stdout is not None
        reader = threading.Thread(
            target=outcomes.read, args=(process.stdout, FOLDER / "outcomes.jsonl")
        )
        reader.start()
        while reader.is_alive() and len(outcomes.index_by_number) < KILL_AFTER:
            time.sleep(0.01)
        kill_the_leader(deployed)
        reader.join()
    if process.wait():
        raise deployment.CommandError(f"dledger append failed with exit code {process.returncode}")
    if len(outcomes.index_by_number) != outcomes.summary.get("acknowledged"):
        raise deployment.CommandError(
            "kubectl exec lost the end of the output of dledger append (Kubernetes issue 124571), "
            "so the demo does not know which records to read back; run `make demo` again"
        )
    return outcomes


def kill_the_leader(deployed: Deployment) -> None:
    """Delete the leader's pod, without a grace period."""
    group = deployed.kubernetes.get("dlg", GROUP, f"--namespace={NAMESPACE}")
    pod = group["status"]["leader"]["pod"]
    print(f"\n$ kubectl delete pod {pod} --grace-period=0 --force", flush=True)
    deployed.kubernetes.kubectl(
        "delete", "pod", pod, f"--namespace={NAMESPACE}",
        "--grace-period=0", "--force", "--wait=false",
    )  # fmt: skip


def verify(deployed: Deployment, records: Path, outcomes: Outcomes) -> None:
    """Read the log back and compare every acknowledged record with the bytes at its index."""
    indexes = outcomes.index_by_number.values()
    held = deployment.read_log(deployed.kubernetes, NAMESPACE, GROUP, min(indexes), max(indexes))
    with records.open() as lines:
        equal = sum(
            held.get(outcomes.index_by_number.get(number, -1)) == line.rstrip("\n")
            for number, line in enumerate(lines)
        )
    print(f"  read back, bytes equal  {equal:>9,}")
    if equal != flights.RECORDS:
        raise deployment.CommandError(f"{flights.RECORDS - equal:,} records were lost or moved")


def leader_metrics(deployed: Deployment) -> str:
    """Return the operator's metrics about the leader and the duration of the failover."""
    page = deployed.kubernetes.page(
        deployment.OPERATOR_NAMESPACE, deployed.operator_pod(), 8080, "/metrics"
    )
    wanted = ("dledger_group_leader{", "dledger_group_term{", "dledger_leader_changes_total{",
              "dledger_double_master_observed_total{", "dledger_failover_seconds_sum{")  # fmt: skip
    return "\n".join(f"  {line}" for line in page.splitlines() if line.startswith(wanted))


def shown(deployed: Deployment, *arguments: str) -> None:
    """Run kubectl; print the command and its output."""
    print(f"$ kubectl {' '.join(arguments)}", flush=True)
    printed = deployed.kubernetes.kubectl(
        *arguments, f"--namespace={NAMESPACE}", timeout_s=deployment.COMMAND_TIMEOUT_S * 3
    )
    print("\n".join(f"  {line}" for line in printed.splitlines()), flush=True)


def say(heading: str) -> None:
    """Print a heading."""
    width = shutil.get_terminal_size().columns
    print(f"\n== {heading} {'=' * max(0, min(width, 100) - len(heading) - 4)}", flush=True)


def farewell(deployed: Deployment) -> str:
    """Return a text on what to try next, and how to stop."""
    environment = ""
    if deployed.local is not None:
        environment = (
            f"  export KUBECONFIG={deployed.local.kubeconfig}\n"
            f"  export PATH={deployed.local.kubectl_program.parent}:$PATH\n"
        )
    return (
        f"\nTry next:\n{environment}"
        f"  kubectl -n {NAMESPACE} get dlg,dla,pods -L dledger.io/role\n"
        f"  kubectl -n {NAMESPACE} describe dlg {GROUP}\n"
        f"  kubectl -n {NAMESPACE} exec client -- dledger status"
        f" --servers {GROUP}-master:40911 --group {GROUP}\n"
        f"  kubectl -n {NAMESPACE} delete pod -l dledger.io/role=master --grace-period=0 --force\n"
        "To stop:\n  make demo-down"
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""Executors: their settings, their process, and how long an audit waits for them. Without Spark."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_audit import arguments
from dledger_audit.executors import masters, program, settings
from dledger_audit.executors.reasons import UNKNOWN, reason_of
from dledger_audit.executors.starting import executor_pod
from dledger_audit.executors.watching import Patience
from dledger_audit.workers import MIB, WORKER_BYTES
from pyspark_dledger.pace import VARIABLE, Pace

ENVIRONMENT = {
    settings.POD_NAME: "monthly-audit-x",
    settings.POD_NAMESPACE: "air",
    settings.POD_IP: "198.18.0.7",
}


def pod(**resources: Any) -> dict[str, Any]:
    container = {"name": "audit", "image": "audit:1", "resources": resources}
    return {"metadata": {"labels": {}}, "spec": {"containers": [container]}}


def in_pods(of: dict[str, Any], executors: int = 2, **environment: str) -> dict[str, str]:
    return settings.in_pods(
        executors, of, pod_file="/tmp/pod.json", environment=ENVIRONMENT | environment,
        java_options="-Dx=y",
    )  # fmt: skip


def test_the_pods_of_executors_have_fixed_ports_and_belong_to_the_drivers_pod() -> None:
    chosen = in_pods(pod(limits={"memory": "2Gi"}))

    assert chosen["spark.driver.port"] == "7078"
    assert chosen["spark.blockManager.port"] == chosen["spark.driver.blockManager.port"] == "7079"
    assert chosen["spark.driver.host"] == "198.18.0.7"
    assert chosen["spark.kubernetes.driver.pod.name"] == "monthly-audit-x"
    assert chosen["spark.kubernetes.namespace"] == "air"
    assert chosen["spark.executor.instances"] == "2"
    assert chosen["spark.authenticate"] == chosen["spark.network.crypto.enabled"] == "true"


@pytest.mark.parametrize("chosen", [in_pods(pod()), settings.below_a_master(2)])
def test_spark_does_not_end_a_run_because_many_executors_failed(chosen: dict[str, str]) -> None:
    """Spark would end the JVM itself, and the reason with it."""
    assert int(chosen["spark.executor.maxNumFailures"]) >= 10**6
    assert chosen["spark.executor.failuresValidityInterval"] == "1h"


def test_an_address_of_version_6_is_written_in_brackets() -> None:
    chosen = in_pods(pod(), **{settings.POD_IP: "fd00::7"})

    assert chosen["spark.driver.host"] == chosen["spark.driver.bindAddress"] == "[fd00::7]"


@pytest.mark.parametrize(
    ("resources", "cores"),
    [
        ({}, 2),
        ({"limits": {"memory": "2Gi"}, "requests": {"cpu": "4"}}, 3),
        ({"limits": {"memory": "1200Mi", "cpu": "4"}}, 1),
        ({"limits": {"memory": "8Gi", "cpu": "1500m"}, "requests": {"cpu": "1"}}, 2),
        ({"limits": {"memory": "8Gi"}, "requests": {"cpu": "100m"}}, 2),
        ({"requests": {"memory": "1Gi", "cpu": 2}}, 1),
    ],
)
def test_an_executor_runs_as_many_tasks_as_its_cpus_and_memory_allow(
    resources: dict[str, Any], cores: int
) -> None:
    share = settings.share_of(pod(**resources))

    assert share.cores == cores
    chosen = in_pods(pod(**resources))
    used = [chosen["spark.executor.memory"], chosen["spark.executor.memoryOverhead"]]
    assert sum(int(each.removesuffix("m")) for each in used) * MIB == share.memory_bytes


@given(st.integers(1, 64), st.integers(1200, 10**6))
def test_the_memory_of_an_executor_has_room_for_its_tasks(cpus: int, memory_mib: int) -> None:
    share = settings.share_of(pod(limits={"cpu": cpus, "memory": f"{memory_mib}Mi"}))

    assert settings.EXECUTOR_BYTES + share.cores * WORKER_BYTES <= memory_mib * MIB
    assert 1 <= share.cores <= max(cpus, settings.TASKS_MIN)


@pytest.mark.parametrize(("tasks", "executors"), [(0, 1), (1, 1), (3, 2), (4, 2), (5, 3), (99, 4)])
def test_no_more_executors_start_than_there_is_work_for(tasks: int, executors: int) -> None:
    assert settings.count(tasks, cores=2, most=4) == executors


@given(st.integers(1, 10**12), st.integers(1, 100))
def test_executors_divide_the_rate_of_a_member_between_them(rate: int, executors: int) -> None:
    chosen = settings.paced(f"{rate}:/there", executors, "/here")
    each, folder = chosen[f"spark.executorEnv.{VARIABLE}"].split(":")

    assert int(each) * executors <= max(rate, executors)
    assert folder == "/here"
    assert settings.paced(None, executors, "/here") == {}


def test_the_first_process_of_an_executor_makes_the_folder_of_the_paces(tmp_path: Path) -> None:
    folder = tmp_path / "pace"
    slept: list[float] = []

    Pace(folder / "n0", 100, clock=lambda: 7.0, sleep=slept.append).spend(50)
    Pace(folder / "n0", 100, clock=lambda: 7.0, sleep=slept.append).spend(50)

    assert slept == [0.5, 1.0]
    assert folder.stat().st_mode & 0o777 == 0o700


SPARKS = {
    "SPARK_DRIVER_URL": "spark://driver@198.18.0.7:7078", "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2", "SPARK_EXECUTOR_MEMORY": "512m", "SPARK_APPLICATION_ID": "app",
    "SPARK_EXECUTOR_POD_IP": "198.18.0.8", "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "exec-1", "SPARK_JAVA_OPT_10": "-Dk", "SPARK_JAVA_OPT_2": "-Dj",
    "SPARK_JAVA_OPTS": "no option",
}  # fmt: skip


def test_an_executor_is_started_with_what_spark_tells_it() -> None:
    words = program.command(SPARKS, Path("/spark"))

    assert words[:6] == ["java", "-Dj", "-Dk", "-Xmx512m", "-cp", "/spark/jars/*"]
    assert words[6] == program.BACKEND
    flags = dict(zip(words[7::2], words[8::2], strict=True))
    assert flags == {
        "--driver-url": "spark://driver@198.18.0.7:7078", "--executor-id": "1", "--cores": "2",
        "--app-id": "app", "--hostname": "198.18.0.8", "--resourceProfileId": "0",
        "--podName": "exec-1",
    }  # fmt: skip
    assert program.command(SPARKS | {"JAVA_HOME": "/java"}, Path("/spark"))[0] == "/java/bin/java"


def test_nobody_but_spark_starts_an_executor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SPARK_EXECUTOR_MEMORY", raising=False)

    with pytest.raises(SystemExit) as stopped:
        program.main()

    assert stopped.value.code == 2
    assert "only Spark starts executors" in capsys.readouterr().err


def test_patience_ends_only_while_there_is_work_and_no_executor() -> None:
    patience = Patience(10)

    def is_over(now_s: float, executors: int, jobs: int) -> bool:
        return patience.is_over(now_s=now_s, executors=executors, jobs=jobs)

    assert not is_over(0, executors=0, jobs=1)
    assert not is_over(9, executors=0, jobs=1)
    assert not is_over(9.5, executors=1, jobs=1), "one came in time"
    assert not is_over(30, executors=0, jobs=0), "there is nothing to do"
    assert not is_over(40, executors=0, jobs=1), "it was lost midway"
    assert is_over(50, executors=0, jobs=1)
    assert is_over(51, executors=0, jobs=1)


def waiting(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "exec-1"}, "status": status}


@pytest.mark.parametrize(
    ("pods", "refusal", "reason"),
    [
        ([], "", UNKNOWN),
        ([], "exceeded quota: none", "a pod is refused: exceeded quota: none"),
        (
            [
                waiting(
                    phase="Pending",
                    conditions=[
                        {
                            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                            "message": "no node has room",
                        }
                    ],
                )
            ],
            "",
            "pod exec-1: Unschedulable: no node has room",
        ),
        (
            [waiting(containerStatuses=[{"state": {"waiting": {"reason": "ErrImagePull"}}}])],
            "",
            "pod exec-1: ErrImagePull",
        ),
        (
            [waiting(containerStatuses=[{"state": {"waiting": {"reason": "ContainerCreating"}}}])],
            "",
            UNKNOWN,
        ),
        (
            [
                waiting(
                    containerStatuses=[
                        {"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
                    ]
                )
            ],
            "exceeded quota",
            "pod exec-1: OOMKilled: exit code 137",
        ),
        ([waiting(phase="Failed", reason="Evicted")], "", "pod exec-1: Evicted"),
    ],
)  # fmt: skip
def test_the_reason_is_the_trouble_of_a_pod_or_the_refusal_of_one(
    pods: list[dict[str, Any]], refusal: str, reason: str
) -> None:
    assert reason_of(pods, refusal) == reason


@pytest.mark.parametrize("given", ["", "{", '"pod"', "{}", '{"spec": {"containers": []}}'])
def test_a_wrong_pod_of_an_executor_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.EXECUTOR_POD, given)

    with pytest.raises(settings.ExecutorPodError, match=settings.EXECUTOR_POD):
        executor_pod()


def test_the_pod_of_an_executor_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.EXECUTOR_POD, json.dumps(pod()))

    assert executor_pod() == pod()


@pytest.mark.parametrize(
    "wrong",
    [
        ["--executors", "0"], ["--executors", "101"], ["--executors-within", "0"],
        ["--conf", "spark.task.cpus"], ["--conf", "hadoop.x=1"],
        ["--conf", "spark.executor.instances=4"], ["--conf", "spark.cores.max=4"],
        ["--conf", "spark.dynamicAllocation.enabled=true"], ["--conf", "spark.master=local"],
    ],
)  # fmt: skip
def test_wrong_options_of_executors_are_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        arguments.parse(["--group", "g", "--member", "n0=http://h:1", *wrong])
    with pytest.raises(SystemExit):
        arguments.parse(
            ["compact", "--group", "g", "--member", "n0=/x", "--decoder", "kv", "--archive", "/a",
             *wrong]
        )  # fmt: skip


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[2]", True), ("local-cluster[2,1,1024]", False),
     ("spark://h:7077", False), ("k8s://https://h", False)],
)  # fmt: skip
def test_only_tasks_in_the_driver_are_local(master: str, *, local: bool) -> None:
    assert masters.is_local(master) is local

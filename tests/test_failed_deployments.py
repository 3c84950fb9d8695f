"""A deployment that fails leaves no cluster behind, and its own error is the one that is seen."""

from pathlib import Path
from typing import cast

import pytest

from dledger_e2e.deploying import ends_the_run, removed_on_error
from tools.deployment import CommandError
from tools.local_cluster.cluster import Cluster
from tools.local_cluster.errors import LocalClusterError


class Played:
    """A cluster that notes what it is told."""

    name = "e2e"

    def __init__(self, *, is_up: bool = True, down_fails: bool = False) -> None:
        self.told: list[str] = []
        self._is_up = is_up
        self._down_fails = down_fails

    @property
    def kubeconfig(self) -> Path:
        if not self._is_up:
            raise LocalClusterError("cluster 'e2e' does not exist")
        return Path(__file__)

    def kubectl(self, *arguments: str, timeout_seconds: float) -> str:
        self.told.append(arguments[0])
        if arguments[0] == "logs":
            raise LocalClusterError("there is no operator")
        return "what is there"

    def down(self, *, purge: bool) -> None:
        self.told.append(f"down {purge=}")
        if self._down_fails:
            raise LocalClusterError("a mount is busy")


def deploy_in_vain(played: Played) -> None:
    with removed_on_error(cast("Cluster", played)):
        raise CommandError("helm: timed out")


def test_a_deployment_that_fails_tells_its_state_and_removes_its_cluster(
    capsys: pytest.CaptureFixture[str],
) -> None:
    played = Played()

    with pytest.raises(CommandError, match="helm: timed out"):
        deploy_in_vain(played)

    assert played.told == ["get", "get", "describe", "logs", "down purge=True"]
    printed = capsys.readouterr().err
    assert "what is there" in printed
    assert "there is no operator" in printed


def test_a_cluster_that_cannot_be_removed_does_not_hide_the_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(CommandError, match="helm: timed out"):
        deploy_in_vain(Played(down_fails=True))

    assert "the cluster e2e is left: a mount is busy" in capsys.readouterr().err


def test_a_cluster_that_never_came_up_is_not_asked() -> None:
    played = Played(is_up=False)

    with pytest.raises(CommandError, match="helm: timed out"):
        deploy_in_vain(played)

    assert played.told == ["down purge=True"]


def test_a_deployment_that_fails_ends_the_run_once() -> None:
    with pytest.raises(pytest.exit.Exception, match="helm: timed out") as ended, ends_the_run():
        deploy_in_vain(Played())

    assert ended.value.returncode == 1


def test_a_deployment_that_succeeds_stays() -> None:
    played = Played()

    with removed_on_error(cast("Cluster", played)):
        pass

    assert played.told == []

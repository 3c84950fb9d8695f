"""A fake API for reconciling: it records what is applied."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from dledger_kube.objects import group_body
from dledger_operator.api_objects import (
    ChildView,
    Manifest,
    PodView,
    SettingsView,
    StatefulSetView,
    VolumeClaimView,
)
from dledger_operator.clients.errors import KubeError, NotFoundError, RefusedError


class Applied:
    """An API that records applied manifests, and refuses the one named `refuse`."""

    def __init__(
        self,
        stateful_set: StatefulSetView | None = None,
        refuse: str = "",
        settings: SettingsView | None = None,
        claims: Sequence[VolumeClaimView] = (),
        found: Sequence[ChildView] = (),
    ) -> None:
        self.existing = stateful_set
        self.settings_found = settings
        self.children = {(each.kind, each.name): each for each in found}
        self.live: dict[str, Any] | None = group_body()["metadata"]
        self.left = list(claims)
        self.refuse = refuse
        self.manifests: list[Manifest] = []
        """The applied manifests, without the uid or version of the object that they changed."""
        self.sent: list[Manifest] = []
        self.claims_raise: KubeError | None = None
        self.pods: list[PodView] = []
        self.corrected: dict[str, int] = {}
        """The number of first voters of each volume claim whose record was corrected."""
        self.owned: dict[str, list[str]] = {}
        """The names of the owners of each volume claim whose owners were set."""

    async def apply(self, manifest: Manifest) -> None:
        if manifest["metadata"]["name"] == self.refuse:
            raise RefusedError(f"{self.refuse}: spec is invalid")
        self.sent.append(copy.deepcopy(manifest))
        version = self.existing and self.existing.resource_version
        if manifest["metadata"].get("resourceVersion") != version:
            del manifest["metadata"]["resourceVersion"]
        manifest["metadata"].pop("uid", None)
        self.manifests.append(manifest)

    async def group(self, namespace: str, name: str) -> dict[str, Any]:
        if self.live is None:
            raise NotFoundError(name)
        return {"metadata": self.live}

    async def child(self, kind: str, namespace: str, name: str) -> ChildView | None:
        assert namespace == "air"
        return self.children.get((kind, name))

    async def stateful_set(self, namespace: str, name: str) -> StatefulSetView | None:
        assert (namespace, name) == ("air", "flights")
        return self.existing

    async def settings(self, namespace: str, config_map: str) -> SettingsView | None:
        assert (namespace, config_map) == ("air", "flights-settings")
        return self.settings_found

    async def volume_claims(self, namespace: str, group: str) -> list[VolumeClaimView]:
        assert (namespace, group) == ("air", "flights")
        return self.left

    async def set_claim_owners(
        self, claim: VolumeClaimView, owners: Sequence[Mapping[str, Any]]
    ) -> None:
        if self.claims_raise is not None:
            raise self.claims_raise
        self.owned[claim.name] = [str(owner["name"]) for owner in owners]

    async def member_pods(self, namespace: str, group: str) -> list[PodView]:
        return self.pods

    async def correct_first_voters(self, claim: VolumeClaimView, first_voters: int) -> None:
        self.corrected[claim.name] = first_voters

    async def grow_volume_claim(self, *_: object) -> None:
        raise AssertionError("no claim of these tests has a size")

    note_replicas = orphan_stateful_set = delete_network_policy = grow_volume_claim

    @property
    def kinds(self) -> list[str]:
        return [manifest["kind"] for manifest in self.manifests]

    @property
    def claims(self) -> list[Manifest]:
        found: list[Manifest] = self.manifests[-1]["spec"]["volumeClaimTemplates"]
        return found

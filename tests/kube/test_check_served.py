"""What the check of the kinds says, by the answers of an API server."""

import httpx2
from lightkube import KubeConfig
from lightkube.config.models import Cluster, User

from dledger_operator.clients.connection import ApiClient
from dledger_operator.clients.custom_objects import PLURALS, CustomObjectClient
from dledger_operator.clients.errors import (
    KubeError,
    PartlyRefusedError,
    RefusedError,
    UnavailableError,
)


async def outcome(*refused: str, code: int = 403) -> KubeError | None:
    """Return what the check raises if the API server refuses these kinds."""
    status = {"kind": "Status", "code": code, "message": "forbidden"}

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.rpartition("/")[2] in refused:
            return httpx2.Response(code, json=status)
        return httpx2.Response(200, json={"metadata": {}, "items": []})

    config = KubeConfig.from_one(cluster=Cluster(server="http://server"), user=User()).get()
    assert config is not None
    client = ApiClient(config=config, transport=httpx2.MockTransport(answer))
    try:
        await CustomObjectClient(client).check_served("a")
    except KubeError as error:
        return error
    finally:
        await client.close()
    return None


async def test_a_role_that_lacks_one_kind_is_told_from_one_that_lacks_all() -> None:
    assert await outcome() is None
    assert type(await outcome(*PLURALS.values())) is RefusedError
    for plural in PLURALS.values():
        error = await outcome(plural)
        assert type(error) is PartlyRefusedError
        assert str(error).startswith(f"list {plural} in a: forbidden; grant")


async def test_a_401_says_nothing_of_permissions() -> None:
    """The keys of the accounts were rotated, or a webhook that knows them is down."""
    assert type(await outcome(*PLURALS.values(), code=401)) is UnavailableError

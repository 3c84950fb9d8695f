"""Whether a 404 says that an object does not exist."""

import httpx2
import pytest
from lightkube import ApiError

from dledger_operator.clients import connection
from dledger_operator.clients.errors import NotFoundError, NotServedError

PAGE = "404 page not found"


def answer(**content: object) -> httpx2.HTTPStatusError:
    """Return what the library raises for a 404 with this content."""
    request = httpx2.Request("GET", "http://server")
    response = httpx2.Response(404, request=request, **content)  # type: ignore[arg-type]
    if "json" in content:
        return ApiError(request=request, response=response)
    return httpx2.HTTPStatusError(PAGE, request=request, response=response)


def test_a_404_that_names_the_object_says_that_it_does_not_exist() -> None:
    details = {"name": "flights", "group": "dledger.io", "kind": "dledgergroups"}
    message = 'dledgergroups.dledger.io "flights" not found'

    with pytest.raises(NotFoundError, match="flights"), connection.translated("get it"):
        raise answer(json={"code": 404, "message": message, "details": details})


@pytest.mark.parametrize(
    "error",
    [
        answer(text=PAGE),
        answer(json={"code": 404, "message": PAGE}),
        answer(json={"code": 404, "message": PAGE, "details": {}}),
    ],
    ids=["a page", "a status", "the server could not find the requested resource"],
)
def test_any_other_404_says_nothing_about_the_object(error: Exception) -> None:
    with pytest.raises(NotServedError, match=f"get it: {PAGE}"), connection.translated("get it"):
        raise error

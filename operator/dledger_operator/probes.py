"""The pages that the kubelet asks: `/healthz`, whether the process is to go on, and `/readyz`.

A process is ready once it has begun to watch, whether or not it holds a Lease, and stays ready. A
new release that waits for its permissions thus never replaces one that works.
"""

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus

from aiohttp import web

logger = logging.getLogger(__name__)

WAITING = {"waiting": "the API server"}


class Probes:
    """What the two pages answer."""

    def __init__(self) -> None:
        self._check: Callable[[], Mapping[str, int]] | None = None
        self._is_ready = False

    def watches(self, check: Callable[[], Mapping[str, int]]) -> None:
        """Answer with what `check` returns, or that it raises, from now on."""
        self._check, self._is_ready = check, True

    def waits(self) -> None:
        """Answer that the process waits: it is alive."""
        self._check = None

    async def healthz(self, _: web.Request) -> web.Response:
        """Tell how many workers run; 500 after one has crashed, or a watch fell silent."""
        if self._check is None:
            return _page(WAITING)
        try:
            return _page({"workers": self._check()})
        except Exception as error:
            logger.exception("the liveness probe fails")
            return _page({"failed": str(error)}, HTTPStatus.INTERNAL_SERVER_ERROR)

    async def readyz(self, _: web.Request) -> web.Response:
        """Answer 503 until the process watches for the first time."""
        if self._is_ready:
            return _page({"ready": "yes"})
        return _page(WAITING, HTTPStatus.SERVICE_UNAVAILABLE)


def _page(content: Mapping[str, object], status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    response = web.json_response(content, status=status)
    # kopf cancels the tasks of connections when it ends: nobody would answer the next request.
    response.force_close()
    return response

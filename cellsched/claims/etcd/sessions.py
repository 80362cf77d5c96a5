# SPDX-License-Identifier: Apache-2.0
"""Sessions with a member of etcd, which send much the same all the time."""

from typing import Any

import requests


class MemberSession(requests.Session):
    """Prepares once what all requests to an address have in common.

    That takes a quarter of the time of a request else. Of each there is its
    JSON besides; neither redirects nor cookies are heeded, of which etcd has
    none.
    """

    def __init__(self) -> None:
        super().__init__()
        # With the token that each was prepared for.
        self._prepared: dict[str, tuple[Any, requests.PreparedRequest]] = {}

    def post(
        self, url: str | bytes, data: Any = None, json: Any = None,
        **kwargs: Any,
    ) -> requests.Response:
        """Return the answer; of a stream, without its content."""
        address = str(url)
        # Who logs in again has another; the one before is of no use.
        token = self.headers.get('Authorization')
        of, prepared = self._prepared.get(address, (None, None))
        if prepared is None or of != token:
            prepared = self.prepare_request(
                requests.Request('POST', address, json={}))
            self._prepared[address] = token, prepared
        request = prepared.copy()
        request.prepare_body(data, None, json)
        return self.get_adapter(address).send(
            request, stream=kwargs.get('stream', False),
            timeout=kwargs.get('timeout'), verify=self.verify, cert=self.cert)

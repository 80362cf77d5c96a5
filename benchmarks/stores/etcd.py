# SPDX-License-Identifier: Apache-2.0
"""Claims in etcd, and the same puts by etcd3gw alone."""

import base64
import contextlib
import pathlib
import sys
import uuid

import etcd3gw

from cellsched.claims import base as claims
from cellsched.claims.etcd import client
from cellsched.claims.etcd import protocol
from stores import base

# The test suite has the code to start the servers.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from tests.integration import etcd  # noqa: E402
from tests.integration import servers  # noqa: E402

#: Prefix of the plain keys, so that they are not keys of the store.
PREFIX = b'/plain'


class Etcd(base.Kind):

    @contextlib.contextmanager
    def served(self):
        with servers.part_of(etcd.Etcd) as part:
            url = part.url('claims')
            version = part.server.client().status()['version']
            yield {'version': f'etcd {version}', 'port': part.server.port[
                'client0'], 'options': '[claims]\nstore = etcd\n'
                                       f'connection = {url}\n'}

    def version(self, address):
        return address['version']

    def counting(self, parts):
        lost = []

        def notice(request, answer):
            if puts(request) and isinstance(
                    answer, protocol.TransactionOutcome) and (
                        not answer.succeeded):
                lost.append(request)

        base.watch(client.EtcdClient, notice)
        return base.CountingClaims(parts.claims, lost=lambda: len(lost))

    def plain(self, address):
        return Plain(address)


def puts(request):
    """Return the puts of a request."""
    if not isinstance(request, protocol.Transaction):
        return []
    return [op for op in request.success if isinstance(op, protocol.Put)]


class Plain(base.Plain):
    """The puts of the store's own claims, without conditions."""

    def __init__(self, address):
        super().__init__()
        self._address = address
        self._client = etcd3gw.Etcd3Client(
            port=address['port'], timeout=60, api_path='/v3/')
        self._claim = None

    def claim(self, takes):
        for take in takes:
            if self._claim is None:
                self._claim = self._learned(take.resources)
            consumer, provider, ops = self._claim

            def own(data):
                return data.replace(consumer, take.consumer.encode()).replace(
                    provider, take.provider.encode())

            self._client.transaction({
                'compare': [], 'failure': [],
                'success': [{'request_put': {
                    'key': encoded(PREFIX + own(op.key)),
                    'value': encoded(own(op.value))}} for op in ops]})

    def _learned(self, resources):
        """Return a consumer, a provider, and the store's puts for a claim."""
        consumer, provider = str(uuid.uuid4()), str(uuid.uuid4())
        seen = []
        end = base.watch(client.EtcdClient,
                         lambda request, answer: seen.append(request))
        with base.opened(self._address) as parts:
            parts.claims.set_inventory(provider, {
                name: claims.Inventory(total=amount)
                for name, amount in resources.items()})
            seen.clear()
            parts.claims.claim([claims.Claim(
                consumer, provider, resources, project_id=base.PROJECT,
                user_id=base.USER)])
            ops = [op for request in seen for op in puts(request)]
            end()
            parts.claims.release([consumer])
        return consumer.encode(), provider.encode(), ops

    def release(self, takes):
        """Do nothing: the keys are not read."""


def encoded(data):
    return base64.b64encode(data).decode()

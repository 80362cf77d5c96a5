# SPDX-License-Identifier: Apache-2.0
"""Claims in etcd, on a real server."""

import random
import uuid

from cellsched.claims import base as claims
from cellsched.claims import etcd
from cellsched.claims.etcd import client
from cellsched.claims.etcd import options
from cellsched import clock
from cellsched.testing.suite import claims as suite
from tests.integration import base
from tests.integration.claims import closing
from tests.integration.claims import disagreeing
from tests.integration import etcd as servers
from tests import profile


class OnEtcd:
    """Makes stores below a prefix of a shared server."""

    def setUp(self):
        super().setUp()
        self.url = self.part_of(servers.Etcd).url('claims')
        self.store = self.make_store()

    def make_client(self, timeout_s=20.0):
        made = client.EtcdClient(options.place(self.url), timeout_s)
        self.addCleanup(made.close)
        return made

    def make_store(self):
        return self.make_store_with(clock.Clock())

    def make_store_with(self, clock_):
        store = etcd.EtcdClaims(
            self.make_client(), clock_, random.Random(),
            options.place(self.url).prefix, self.url,
            base.PATIENCE_S)
        store.sync()
        store.check()
        return store

    def make_peer(self, store):
        return self.make_store()


@profile.by_default(
    'test_last_places_go_to_as_many_as_fit',
    reason='the published suite; by default it runs on PostgreSQL')
class TestEtcdClaims(OnEtcd, suite.ClaimStoreSuite, base.TestCase):
    pass


class TestParts(OnEtcd, base.TestCase):
    """A server executes the parts of a transaction alone."""

    def test_requests_for_several_hosts_succeed_alone(self):
        hosts = [str(uuid.uuid4()) for _ in range(3)]
        for host in hosts:
            self.store.set_inventory(host, {'VCPU': claims.Inventory(3)})
        peer = self.make_peer(self.store)

        def request(*hosts):
            name = str(uuid.uuid4())
            return [[claims.Claim(name, host, {'VCPU': 1})] for host in hosts]

        # The first host is contended, so later claims of it have guesses.
        for _ in range(2):
            for store in self.store, peer:
                store.claim_each([request(*hosts)])

        outcomes = self.store.claim_each(
            [request(*hosts) for _ in range(2)] + [request(hosts[2])])

        self.assertEqual([1, 1, 0], [each.chosen for each in outcomes])
        self.assertEqual([3, 3, 1], [
            self.store.usages(providers=[host]).usages[0].used['VCPU']
            for host in hosts])


class TestClosing(closing.ClosedWithItsParts, OnEtcd, base.TestCase):
    pass


@profile.full_only(
    'clocks that disagree; the rules are proven on PostgreSQL')
class TestClocksThatDisagree(
        disagreeing.DisagreeingClocks, OnEtcd, base.TestCase):
    pass

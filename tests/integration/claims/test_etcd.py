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


class TestLargeBatches(OnEtcd, base.TestCase):
    """A server counts the operations of nested transactions alone."""

    def test_largest_batch_is_a_single_transaction(self):
        host = str(uuid.uuid4())
        self.store.set_inventory(host, {'VCPU': claims.Inventory(4029)})
        batch = [claims.Claim(str(uuid.uuid4()), host, {'VCPU': 1})
                 for _ in range(4029)]

        self.assertEqual(4029, self.store.claim(batch))

        [usage] = self.store.usages(providers=[host]).usages
        self.assertEqual((4029, 4029), (usage.used['VCPU'], usage.consumers))


class TestClosing(closing.ClosedWithItsParts, OnEtcd, base.TestCase):
    pass


@profile.full_only(
    'clocks that disagree; the rules are proven on PostgreSQL')
class TestDisagreeingClocks(
        disagreeing.DisagreeingClocks, OnEtcd, base.TestCase):
    pass

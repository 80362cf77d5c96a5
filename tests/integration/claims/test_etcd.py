# SPDX-License-Identifier: Apache-2.0
"""Claims in etcd, on a real server."""

import random

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


class TestClosing(closing.ClosedWithItsParts, OnEtcd, base.TestCase):
    pass


@profile.full_only(
    'clocks that disagree; the rules are proven on PostgreSQL')
class TestClocksThatDisagree(
        disagreeing.DisagreeingClocks, OnEtcd, base.TestCase):
    pass

# SPDX-License-Identifier: Apache-2.0
"""etcd at its quota (alarm NOSPACE) accepts deletions, and nothing else."""

import random
import uuid

from etcd3gw import exceptions

from cellsched.claims import base as claims_base
from cellsched.claims import etcd
from cellsched.claims.etcd import client
from cellsched.claims.etcd import options
from cellsched import exception
from cellsched.testing import clock
from tests.integration import base
from tests.integration import etcd as servers


class SmallEtcd(servers.Etcd):
    """A member with a quota of 3 MB."""

    def _member(self, number):
        process = super()._member(number)
        process.args.append('--quota-backend-bytes=3000000')
        return process

    def make_room(self):
        """Do what the error advises."""
        client = self.client()
        client.delete_prefix('/other/')
        self.compact()
        client.post(client.get_url('/maintenance/defragment'), json={})
        url = client.get_url('/maintenance/alarm')
        for alarm in client.post(url, json={})['alarms']:
            client.post(url, json={'action': 'DEACTIVATE', **alarm})


class TestFullEtcd(base.TestCase):

    def setUp(self):
        super().setUp()
        self.server = self.own(SmallEtcd)
        url = self.server.url('claims')
        self.clock = clock.FakeClock()
        place = options.place(url)
        self.store = etcd.EtcdClaims(
            client.EtcdClient(place, 20.0), self.clock, random.Random(),
            place.prefix, url, 10.0)
        self.store.sync()
        self.host = str(uuid.uuid4())
        self.store.set_inventory(
            self.host, {'VCPU': claims_base.Inventory(8)})

    def fill(self):
        try:
            for number in range(400):
                self.server.client().put(f'/other/{number % 3}', 'x' * 50000)
        except exceptions.Etcd3Exception:
            return
        self.fail('the member is not full')

    def test_held_claims_can_be_released(self):
        server = str(uuid.uuid4())
        self.store.claim([
            claims_base.Claim(server, self.host, {'VCPU': 8})])
        self.fill()

        self.store.release([server])

        self.assertEqual({}, self.store.claims_of([server]))
        # The alarm is named in the error of a claim and in the log.
        claim = claims_base.Claim(str(uuid.uuid4()), self.host, {'VCPU': 8})
        self.assertIn('NOSPACE', str(self.assertRaises(
            exception.ClaimStoreFailed, self.store.claim, [claim])))
        self.assertIn('NOSPACE', self.logs.output)
        # With space again, the released capacity can be claimed.
        self.server.make_room()
        self.clock.advance(10)
        self.store.usages()
        self.store.claim([claim])

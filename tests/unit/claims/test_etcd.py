# SPDX-License-Identifier: Apache-2.0
"""Claims in a model of etcd."""

from cellsched.claims import base as claims
from cellsched.claims.etcd import protocol
from cellsched import clock
from cellsched import exception
from cellsched.simulator.servers import etcd as servers
from cellsched.testing.suite import claims as suite
from tests.unit import base
from tests.unit.claims.etcd import base as on_model
from tests.unit.claims import model


class TestEtcdClaims(
        on_model.OnModel, suite.ClaimStoreSuite, base.TestCase):

    def make_store(self):
        # Racing threads are to let each other go on.
        return super().make_store(clock=clock.Clock())


class TestEtcdModel(on_model.OnModel, model.ModelTests, base.TestCase):
    pass


class TestRequests(on_model.TestCase):

    def setUp(self):
        super().setUp()
        self.sent = self.client.sent
        self.peer = self.make_store()
        self.store.set_inventory('h', {'VCPU': claims.Inventory(100)})
        self.names = iter('abcdefghijklmnopqrstuvwxyz')

    def requests(self, call):
        """Return the requests of a call."""
        del self.sent[:]
        call()
        return [*self.sent]

    def claim(self, store=None):
        (store or self.store).claim([
            claims.Claim(next(self.names), 'h', {'VCPU': 1})])

    def used(self):
        [usage] = self.peer.usages(providers=['h']).usages
        return usage.used['VCPU'], usage.consumers

    def test_claim_of_what_was_seen_is_one_request(self):
        self.assertEqual(1, len(self.requests(self.claim)))

    def test_claim_of_what_others_changed_is_one_request_more(self):
        self.claim(self.peer)

        self.assertEqual(2, len(self.requests(self.claim)))

    def test_claim_of_what_others_change_all_the_time_is_one_request(self):
        self.claim(self.peer)
        self.claim()
        for _ in range(3):
            self.claim(self.peer)
            self.claim(self.peer)
            self.claim(self.peer)

            requests = self.requests(self.claim)

            self.assertEqual(1, len(requests))

    def lose_often(self):
        """Let the store learn that its cache is mostly outdated."""
        for _ in range(12):
            for _ in range(5):
                self.claim_again(self.peer)
            self.claim_again()

    def claim_again(self, store=None):
        """Claim and release, so that capacity is always free."""
        (store or self.store).claim([claims.Claim('same', 'h', {'VCPU': 1})])
        self.peer.release(['same'])

    def test_where_others_are_mostly_faster_a_member_is_asked_before(self):
        self.lose_often()
        for _ in range(5):
            self.claim_again(self.peer)

        look, claim = self.requests(self.claim)

        self.assertTrue(all(get.is_local for get in look.success))
        self.assertIn(protocol.Put, map(type, claim.success))
        self.assertEqual((1, 1), self.used())

    def test_member_is_asked_no_more_once_nobody_else_is_at_work(self):
        self.lose_often()
        for number in range(30):
            self.store.claim([
                claims.Claim(f'only-{number}', 'h', {'VCPU': 1})])

        self.assertEqual(1, len(self.requests(self.claim)))

    def test_what_a_member_is_behind_with_is_found_out_by_the_claim(self):
        self.lose_often()
        self.model.behind = 10
        self.store.set_inventory('h', {'VCPU': claims.Inventory(3)})
        self.claim(self.peer)
        self.claim()
        self.claim()

        self.assertEqual((3, 3), self.used())
        self.assertRaises(exception.ClaimRefused, self.claim)
        self.assertEqual((3, 3), self.used())

    def test_what_is_guessed_never_exceeds_the_capacity(self):
        self.store.set_inventory('h', {'VCPU': claims.Inventory(5)})
        self.claim(self.peer)
        self.claim()
        for _ in range(3):
            self.claim(self.peer)

        self.assertRaises(exception.ClaimRefused, self.claim)

        self.assertEqual((5, 5), self.used())

    def test_feed_without_changes_is_one_read_of_one_key(self):
        token = self.store.usages().token

        [request] = self.requests(lambda: self.store.usages(token))

        self.assertEqual((protocol.Get(b'/cellsched/p/'),), request.success)

    def test_feed_reads_what_changed(self):
        token = self.store.usages().token
        self.claim(self.peer)

        requests = self.requests(lambda: self.store.usages(token))

        self.assertEqual([protocol.Transaction, protocol.Changes],
                         [*map(type, requests)])

    def test_feed_of_what_was_compacted_tells_what_changed(self):
        self.store.set_inventory('other', {})
        token = self.store.usages().token
        self.claim(self.peer)
        self.claim(self.peer)
        self.model.compact()

        self.assertEqual(['h'], [
            usage.provider for usage in self.store.usages(token).usages])

    def test_token_of_another_cluster_tells_everything(self):
        token = self.store.usages().token
        self.model.cluster = '2'

        self.assertEqual(['h'], [
            usage.provider for usage in self.store.usages(token).usages])


class TestServer(on_model.TestCase):

    def test_old_release_is_refused(self):
        self.model.version = '3.3.27'

        error = self.assertRaises(
            exception.ConfigurationInvalid, self.store.check)

        self.assertIn('3.3.27', str(error))
        for version in '3.4.0', '3.10.1', '4.0.0-rc.1':
            self.model.version = version
            self.store.check()

    def test_place_that_was_not_prepared_names_the_command(self):
        self.client.model = servers.EtcdModel()

        error = self.assertRaises(
            exception.SchemaOutOfDate, self.store.check)

        self.assertIn('cellsched-manage claims_db sync', str(error))

    def test_what_the_server_refuses_is_an_error_with_its_reason(self):
        store = self.make_store(
            client=on_model.ModelClient(servers.EtcdModel(ops_max=1)))

        error = self.assertRaises(
            exception.DatabaseError, store.claims_of, ['a', 'b'])

        self.assertIn('too many operations', str(error))

    def test_recount_sets_figures_right(self):
        self.store.set_inventory('h', {'VCPU': claims.Inventory(9)})
        self.store.claim([claims.Claim('a', 'h', {'VCPU': 2})])
        key = b'/cellsched/p/h'
        [found] = self.model.read(key)
        self.model.answer(protocol.Transaction(success=(protocol.Put(
            key, found.value.replace(b'"VCPU":2', b'"VCPU":3')),)))

        self.assertEqual([True, False], [
            self.store.recount('h') for _ in range(2)])

        [usage] = self.store.usages(providers=['h']).usages
        self.assertEqual(2, usage.used['VCPU'])

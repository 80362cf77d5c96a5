# SPDX-License-Identifier: Apache-2.0

from cellsched.audit import auditor
from cellsched.claims import base as claims_base
from cellsched.db.cell import server_moves
from cellsched import migrations
from tests.unit.audit import base
from tests.unit.db import samples


class TestLeakedClaims(base.TestCase):

    def setUp(self):
        super().setUp()
        self.leaked = auditor.LeakedClaims(self.reader, self.repairs)

    def test_leaked_claims_go_at_the_second_look(self):
        uuids = [self.deleted(), self.failed(), self.failed('cell2')]
        for uuid in uuids[1:]:
            self.take(uuid, 'b1')
        running, accepted = self.running(), self.accept()
        self.take(accepted, 'a2')

        self.assertEqual(0, self.leaked.release_leaked())
        self.assertEqual({*uuids}, {*self.claims.claims_of(uuids)})
        self.assertEqual(3, self.leaked.release_leaked())

        self.assertEqual({running, accepted}, {*self.claims.consumers()})
        self.assertEqual(0, self.leaked.release_leaked())

    def test_interrupted_leak_of_a_claim_is_counted_anew(self):
        uuid = self.failed('cell1')
        self.take(uuid, 'a1')
        self.leaked.release_leaked()
        self.change_row(uuid, 'cell1', task_state='rebuilding')
        self.leaked.release_leaked()
        self.change_row(uuid, 'cell1', task_state=None)

        self.assertEqual(0, self.leaked.release_leaked())
        self.assertEqual(1, self.leaked.release_leaked())

    def test_foreign_claims_stay(self):
        rest = samples.uuids(3)
        for uuid in rest:
            self.take(uuid, 'a2')

        for _ in range(3):
            self.assertEqual(0, self.leaked.release_leaked())
        self.assertEqual({*rest}, {*self.claims.consumers()})

    def test_claims_of_a_down_cell_stay(self):
        self.deleted()
        self.take_down('cell1')

        for _ in range(3):
            self.assertEqual(0, self.leaked.release_leaked())

    def test_claims_of_ended_migrations_are_released(self):
        over, on = self.running(), self.running()
        self.take(self.move(over, status=server_moves.DONE), 'a2')
        self.take(self.move(on), 'a2')

        self.leaked.release_leaked()
        self.assertEqual(1, self.leaked.release_leaked())

        self.assertEqual(3, len(self.claims.consumers()))

    def test_withdrawn_claims_of_a_stopped_process_are_restored(self):
        lost, twice, gone = self.running(), self.running(), self.deleted()
        held = self.claims.claims_of([lost, twice])
        for uuid in (lost, twice, gone):
            self.claims.transfer(uuid, migrations.consumer(uuid))
        self.take(twice, 'a2')
        [foreign] = samples.uuids(1)
        self.take(foreign, 'a2')

        self.assertEqual(0, self.leaked.release_leaked())
        self.leaked.release_leaked()

        self.assertEqual({lost, twice, foreign}, {*self.claims.consumers()})
        self.assertEqual(held[lost][0].provider,
                         self.claims.claims_of([lost])[lost][0].provider)

    def test_servers_are_searched_for_a_new_consumer_only(self):
        reads = []
        pages = self.reader.pages
        self.reader.pages = lambda query: reads.append(query) or pages(query)
        self.running()
        for expected in (0, 1, 1, 2, 2):
            if expected > len(reads):
                self.take(*samples.uuids(1), 'a2')
            self.leaked.release_leaked()
            self.assertEqual(expected, len(reads))

    def test_claim_to_move_a_deleted_server_goes(self):
        uuid = self.deleted()
        self.claims.release([uuid])
        self.take(self.move(uuid, status=server_moves.DONE), 'a2')

        self.leaked.release_leaked()
        self.assertEqual(1, self.leaked.release_leaked())

        self.assertEqual([], self.claims.consumers())

    def test_failure_of_a_look_is_not_the_last(self):
        uuid = self.deleted()
        database, self.reader.database = self.reader.database, None
        self.leaked.run()
        self.reader.database = database

        self.leaked.run()
        self.leaked.run()

        self.assertEqual({}, self.claims.claims_of([uuid]))


class Unlisted:
    """A store that does not list its consumers."""

    def __init__(self, store):
        self.asked = []
        self.capabilities = store.capabilities - {
            claims_base.Capability.CONSUMER_LIST}
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    def consumers(self, after='', limit=1000):
        raise NotImplementedError()

    def consumers_of(self, provider):
        return [consumer for consumer, held in self._store.claims_of(
            self._store.consumers()).items()
            if any(claim.provider == provider for claim in held)]

    def claims_of(self, consumers):
        asked = list(consumers)
        self.asked += asked
        return self._store.claims_of(asked)


class TestLeakedClaimsOfNoList(TestLeakedClaims):

    def setUp(self):
        super().setUp()
        self.store = self.reader.claims = Unlisted(self.claims)

    def test_only_servers_with_claims_are_read(self):
        uuid, moved = self.running(), self.running()
        name = self.move(moved)
        self.take(name, 'a2')

        self.leaked.release_leaked()

        self.assertEqual({uuid, moved, name}, {*self.store.asked})

# SPDX-License-Identifier: Apache-2.0
"""A process that stops before it releases claims frees no later ones."""

from cellsched.audit import findings
from cellsched.claims import base as claims_base
from cellsched.db.cell import server_moves
from cellsched import exception
from cellsched import migrations
from tests.unit.audit import base as audits
from tests.unit.compute import mover


def stop_before_first_write(test, meanwhile):
    """Have a process stop before it changes a claim.

    :param meanwhile: what others do until it resumes
    """
    store = test.claims
    methods = {name: getattr(store, name) for name in ('release', 'transfer')}

    def stopping(name):
        def call(*args):
            for each, method in methods.items():
                setattr(store, each, method)
            meanwhile()
            return methods[name](*args)
        return call

    for name in methods:
        setattr(store, name, stopping(name))


def watch_use(test, provider):
    """Return the amounts that are in use after each change of claims."""
    store, seen = test.claims, []

    def watched(method):
        def call(*args):
            outcome = method(*args)
            [usage] = store.usages(providers=[provider]).usages
            seen.append(usage.used.get('VCPU', 0))
            return outcome
        return call

    for name in 'release', 'transfer', 'claim':
        setattr(store, name, watched(getattr(store, name)))
    return seen


class TestShelving(mover.MoverTestCase):
    """A conductor ends a shelving late, after an unshelving to one host."""

    def setUp(self):
        super().setUp()
        self.migrations = migrations.Migrations(self.claims, 'here')
        self.shelving = self.accept(server_moves.SHELVE, dest_compute=None)
        self.transit('finish_offload', host=None, node=None)
        self.end(self.shelving, server_moves.MOVED)

    def unshelve(self):
        self.assertTrue(self.migrations.finish(self.cell, self.shelving))
        self.assertEqual({}, self.places)
        move = self.accept(server_moves.UNSHELVE, source_compute=None,
                           source_node=None, dest_compute='host1',
                           dest_node='node1')
        self.claims.claim([claims_base.Claim(
            move.uuid, self.provider, {'VCPU': 1})])
        self.tell('unshelve_instance', move, host='host1', node='node1')
        self.assertState('active', None, 'host1')
        self.seen = watch_use(self, self.provider)

    def test_unshelved_server_keeps_its_claims(self):
        stop_before_first_write(self, self.unshelve)

        self.assertFalse(self.migrations.finish(self.cell, self.shelving))

        self.assertEqual({'own': 'host1'}, self.places)
        self.assertEqual({1}, {*self.seen})

    def test_migrating_server_keeps_its_claim(self):
        def migrate():
            self.unshelve()
            self.accept()

        stop_before_first_write(self, migrate)

        self.assertFalse(self.migrations.finish(self.cell, self.shelving))

        self.assertEqual({1}, {*self.seen})

    def test_failing_store_is_retried(self):
        def fail():
            raise exception.DatabaseUnreachable(
                url='claims://', schema='claims', reason='silence')

        stop_before_first_write(self, fail)
        self.assertRaises(exception.DatabaseUnreachable,
                          self.migrations.finish, self.cell, self.shelving)

        self.assertTrue(self.migrations.finish(self.cell, self.shelving))
        self.assertEqual({}, self.places)


class TestAudit(audits.TestCase):

    def unlocked(self, uuid):
        """Have each change of claims fail if it happens under a row lock."""
        def checked(method):
            def call(*args):
                self.change_row(uuid, 'cell1', display_name='changed')
                return method(*args)
            return call

        for name in 'claim', 'release', 'transfer':
            setattr(self.claims, name, checked(getattr(self.claims, name)))

    def shelved(self):
        uuid = self.running()
        self.change_row(uuid, 'cell1', vm_state='shelved_offloaded',
                        host=None, node=None)
        return uuid

    def test_claims_of_an_unshelved_server_are_kept(self):
        uuid = self.shelved()
        seen = watch_use(self, self.providers['a1'])
        stop_before_first_write(self, lambda: self.change_row(
            uuid, 'cell1', vm_state='active', host='a1', node='node-a1'))

        self.assertFalse(
            self.repairs.release(uuid, findings.Action.RELEASE))

        self.assertEqual([self.providers['a1']], [*self.held(uuid)])
        self.assertEqual({1}, {*seen})

    def test_claims_of_a_killed_process_are_released(self):
        for name in (migrations.consumer, lambda uuid: self.move(
                uuid, status=server_moves.DONE)):
            uuid = self.running()
            self.claims.transfer(uuid, name(uuid))

            self.assertFalse(
                self.repairs.release(uuid, findings.Action.RELEASE_MOVE))

            self.assertEqual([self.providers['a1']], [*self.held(uuid)])
            self.assertClean()

    def test_no_row_is_locked_while_the_claim_store_works(self):
        unclaimed, elsewhere, leaked, moved = (
            self.running(), self.running(), self.shelved(), self.running())
        self.claims.release([unclaimed, elsewhere])
        self.take(elsewhere, 'a2')
        self.take(migrations.consumer(moved), 'a2')
        for uuid in unclaimed, elsewhere, leaked, moved:
            self.unlocked(uuid)

        self.audit(fix=True)

        self.assertClean()
        self.assertEqual({unclaimed, elsewhere, moved},
                         {*self.claims.consumers()})

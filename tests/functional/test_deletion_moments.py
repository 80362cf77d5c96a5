# SPDX-License-Identifier: Apache-2.0
"""A server that is deleted is gone, at whatever moment that happens."""

from cellsched.db.api import build_requests
from cellsched import exception
from cellsched import objects
from cellsched.rpc import conductor
from tests.functional import base

#: What is done for a server that is built, in turn.
BUILDING = ('Accept', 'Tell', 'Lease', 'Select', 'Schedule', 'FindCell',
            'Decide', 'WriteRows', 'Release', 'Cast', 'Begin', 'Spawn',
            'Finish')

#: What is done for one that no host has room for.
BURYING = ('Accept', 'Lease', 'Schedule', 'undone Schedule', 'Bury')


class Death(BaseException):
    """Ends a conductor without cleanup."""


class MomentCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.moment = None
        self.deleted = []
        self.deploy({'cell1': ['a1', 'a2'], 'cell2': ['b1', 'b2']},
                    reached=self.reached)

    def reached(self, step):
        """Delete every server there is when the moment has come."""
        # One that is gone may come to the same step late.
        if step != self.moment or not (there := self.listed()):
            return
        self.moment = None
        for uuid in there:
            try:
                self.delete(uuid)
            except exception.InstanceNotFound:
                # A deletion that was begun before is done by now.
                pass
            self.deleted.append(uuid)

    def deleted_at(self, moment, *args, **wishes):
        """Return a server that was deleted at a moment."""
        self.moment = moment
        [uuid] = self.create(*args, **wishes)
        self.until(lambda: uuid in self.deleted, f'{moment} has come')
        return uuid

    def assertIsGone(self, uuid):
        self.gone(uuid)
        self.assertLeftNothing(uuid)
        self.assertRaises(exception.InstanceNotFound, self.delete, uuid)
        self.send_late_messages(uuid)
        self.assertLeftNothing(uuid)
        for host in self.world.agents:
            self.assertNotIn(uuid, self.driver(host).list_instances())

    def send_late_messages(self, uuid):
        """Deliver again what was said of a server, and wait until it is."""
        parts = self.world.api.parts
        api = conductor.ConductorAPI(parts.transports.get())
        for _ in range(2):
            api.build_and_schedule(base.USER, [uuid])
        self.task().run(base.USER, [uuid])
        with parts.database.reader() as connection:
            spec = objects.RequestSpec.obj_from_primitive(
                build_requests.get_spec(connection, uuid))
        for cell, host in (('cell1', 'a1'), ('cell2', 'b1')):
            cell_context = parts.targets.target_cell(
                base.USER, self.cells()[cell])
            parts.compute.get(
                cell_context.cell.transport).build_and_run_instance(
                cell_context, host=host, instance=objects.Instance(
                    uuid=uuid, flavor=spec.flavor),
                request_spec=spec, filter_properties={}, node=host,
                limits={}, host_list=[])


class TestDeletionMoments(MomentCase):

    def test_server_is_deleted_at_each_step_of_a_build(self):
        for moment in BUILDING:
            self.assertIsGone(self.deleted_at(moment))
        self.assertClaimsMatch()

    def test_server_is_deleted_at_each_step_of_a_burial(self):
        for moment in BURYING:
            self.assertIsGone(self.deleted_at(moment, flavor='huge'))
        self.assertClaimsMatch()

    def test_server_between_two_hosts(self):
        for host in self.world.agents:
            self.driver(host).fail_builds(1)

        self.assertIsGone(self.deleted_at('HandOn'))
        self.assertClaimsMatch()

    def test_server_is_deleted_again_during_its_deletion(self):
        for flavor in ('small', 'huge'):
            [found] = self.built(flavor=flavor)
            self.moment = 'Delete'
            self.delete(found.uuid)

            self.assertIn(found.uuid, self.deleted)
            self.assertIsGone(found.uuid)
        self.assertClaimsMatch()


class TestDyingConductor(MomentCase):

    def test_row_written_after_the_deletion_is_never_listed(self):
        """Nobody is there any more to take it back."""
        for moment in ('Lease', 'Schedule', 'FindCell', 'Decide'):
            [uuid] = self.unheard().servers.create(
                base.USER, 'server', 'small')

            def reached(step, moment=moment, uuid=uuid):
                if step == moment:
                    self.delete(uuid)
                if step in ('WriteRows', f'undone {moment}'):
                    raise Death

            try:
                self.task(reached=reached).run(base.USER, [uuid])
            except Death:
                pass

            self.assertRaises(
                exception.InstanceNotFound, self.get, uuid)
            self.assertEqual({}, self.rows(uuid))
            self.assertNotIn(uuid, self.listed())

# SPDX-License-Identifier: Apache-2.0
"""A failed build is retried on other hosts of its cell."""

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.standalone import deployment
from tests.functional import base

#: The largest host comes first.
LARGE = 65536


def host(name, memory_mb=16384, **behaviour):
    return deployment.DeployedHost(
        name, memory_mb=memory_mb, behaviour=behaviour)


class TestReschedule(base.TestCase):

    def faults(self, cell, uuid):
        table = models.instance_faults
        return self.query(cell, sa.select(
            table.c.message, table.c.details, table.c.host)
            .where(table.c.instance_uuid == uuid))

    def test_build_failed_on_all_hosts_remains_in_its_cell(self):
        self.deploy({'cell1': [host('a1', LARGE, fail_builds=9),
                               host('a2', fail_builds=9)],
                     'cell2': [host('b1')]})

        [found] = self.built()

        self.assertEqual(('ERROR', 'cell1', None, 2), (
            found.status, found.cell, found.host, found.attempts))
        self.assertIn('Exceeded maximum number of retries', found.reason)
        self.assertIn('Exhausted all hosts', found.reason)
        self.assertIsIn('cell1', found.uuid)
        self.assertHoldsNothing(found.uuid)
        self.assertEqual([], self.driver('b1').list_instances())

    def test_build_is_tried_no_more_often_than_is_configured(self):
        self.deploy({'cell1': [host('a1', LARGE, fail_builds=9),
                               host('a2', fail_builds=9),
                               host('a3', fail_builds=9),
                               host('a4', LARGE // 8)]},
                    scheduler={'max_attempts': 2})

        [found] = self.built()

        self.assertEqual(('ERROR', 2), (found.status, found.attempts))
        self.assertIn('Exceeded max scheduling attempts 2', found.reason)
        self.assertIn('the driver is configured to fail', found.reason)
        self.assertHoldsNothing(found.uuid)

    def test_alternate_without_room_is_passed_over(self):
        self.deploy({'cell1': [
            host('a1', LARGE, fail_builds=1), host('a2', LARGE // 2),
            host('a3')]})
        go_on = self.driver('a1').hold_builds()
        [uuid] = self.create()
        self.until(lambda: self.get(uuid).task_state == 'spawning',
                   'the build has begun')
        # Somebody else takes all that the first alternate has.
        self.world.api.flavors.create(base.ADMIN, 'half', 8, LARGE // 2, 10)
        claims = self.world.api.parts.claims
        taker = base.claims_base.Claim(
            'taker', self.provider('cell1', 'a2'), {'VCPU': 8})
        claims.claim([taker])
        go_on.set()

        [found] = self.settled([uuid])

        self.assertEqual(('ACTIVE', 'a3', 2), (
            found.status, found.host, found.attempts))
        claims.release(['taker'])
        self.assertClaimsMatch()

    def test_aborted_build_is_not_retried(self):
        self.deploy({'cell1': [host('a1', LARGE, abort_builds=1), host('a2')],
                     'cell2': [host('b1')]})

        [found] = self.built()

        self.assertEqual(('ERROR', 'cell1', None, 1), (
            found.status, found.cell, found.host, found.attempts))
        self.assertIn('the driver is configured to abort', found.reason)
        self.assertHoldsNothing(found.uuid)
        self.assertIsIn('cell1', found.uuid)
        [fault] = self.faults('cell1', found.uuid)
        self.assertEqual('a1', fault.host)

    def test_servers_in_error_can_be_deleted(self):
        self.deploy({'cell1': [host('a1', abort_builds=1)]})
        [aborted] = self.built()
        [buried] = self.built(flavor='huge')

        for each in aborted, buried:
            self.delete(each.uuid)
            self.gone(each.uuid)
            self.assertLeftNothing(each.uuid)

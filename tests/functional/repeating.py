# SPDX-License-Identifier: Apache-2.0
"""The base of stories of messages that come often, late or too early."""

import random

from cellsched import exception
from cellsched.rpc import compute
from cellsched.rpc import conductor
from cellsched.rpc import scheduler
from tests.functional import base
from tests.functional import moving
from tests.functional import post
from tests import profile

BUILD_AND_SCHEDULE = post.Kind(conductor.TOPIC, 'build_and_schedule')
BUILD_INSTANCES = post.Kind(conductor.TOPIC, 'build_instances')
SELECT = post.Kind(scheduler.TOPIC, 'select_destinations')
BUILD = post.Kind(compute.TOPIC, 'build_and_run_instance')
TERMINATE = post.Kind(compute.TOPIC, 'terminate_instance')
MIGRATE_IN = post.Kind(compute.TOPIC, 'migrate_in')
MIGRATE_OUT = post.Kind(compute.TOPIC, 'migrate_out')

#: The messages of a server's life, and how often each is sent in it.
LIFE = {
    BUILD_AND_SCHEDULE: 1,
    # For the build, and for each move but the shelving.
    SELECT: 6,
    BUILD: 2,
    BUILD_INSTANCES: 1,
    post.Kind(conductor.TOPIC, 'migrate_server'): 2,
    post.Kind(compute.TOPIC, 'prepare_migration'): 2,
    MIGRATE_IN: 2,
    # After two migrations and an evacuation.
    MIGRATE_OUT: 3,
    # A rebuild and an evacuation.
    post.Kind(conductor.TOPIC, 'rebuild_instance'): 2,
    post.Kind(compute.TOPIC, 'rebuild_instance'): 2,
    post.Kind(compute.TOPIC, 'shelve_offload_instance'): 1,
    post.Kind(conductor.TOPIC, 'unshelve_instance'): 1,
    post.Kind(compute.TOPIC, 'unshelve_instance'): 1,
}

#: Methods of clients that send nothing.
SILENT = {
    # They ask which versions may be sent.
    post.Kind(compute.TOPIC, 'check_moves'),
    post.Kind(compute.TOPIC, 'check_transfers'),
    post.Kind(conductor.TOPIC, 'check_transfers'),
}

#: Hosts in the order in which they are chosen.
LARGE = {'vcpus': 64, 'memory_mb': 65536, 'disk_gb': 2000}
MEDIUM = {'vcpus': 32, 'memory_mb': 16384, 'disk_gb': 400}
SMALL = {'vcpus': 4, 'memory_mb': 4096, 'disk_gb': 100}


class TestCase(moving.TestCase):

    def setUp(self):
        super().setUp()
        self.post = self.useFixture(post.Post())
        self.start({
            'cell1': [*self.hosts('a1', **LARGE),
                      *self.hosts('a2', **MEDIUM),
                      *self.hosts('a3', **SMALL)],
            'cell2': self.hosts('b1', **SMALL)}, filter_scheduler={
                'weight_classes': 'RAMWeigher',
                # An evacuated server goes to the best host, and not to one of
                # the best by chance.
                'evacuation_host_subset_size': 1}, conductor={
                # What is repeated late is to be worked on too.
                'scheduling_timeout': 60})
        self.world.api.flavors.create(base.ADMIN, 'huge', 1, 2 * 65536, 10)
        self.addCleanup(self.post.quiet)

    def each_time(self, *chosen):
        """Yield how often messages are delivered, with no server there."""
        for times in chosen or profile.DELIVERIES:
            self.post.forget(times)
            self.done.clear()
            yield times
            for uuid in self.listed():
                self.delete(uuid)
                self.is_gone(uuid)

    def hold(self, host):
        """Let builds of a host wait until what is returned is set."""
        held = self.driver(host).hold_builds()
        self.addCleanup(held.set)
        return held

    def live(self):
        """Have every message sent that is sent for a server; return it."""
        self.driver('a1').fail_builds(1)
        uuid = self.active()
        self.assertEqual(2, self.get(uuid).attempts)
        self.rests('active', 'a2', uuid)
        self.moves.migrate(base.ADMIN, uuid)
        self.rests('active', 'a1', uuid)
        self.moves.rebuild(base.USER, uuid, 'other')
        self.rests('active', 'a1', uuid)
        self.moves.shelve(base.USER, uuid)
        self.rests('shelved_offloaded', None, uuid)
        self.moves.unshelve(base.USER, uuid)
        self.rests('active', 'a1', uuid)
        # A host that a scheduler who reads no more than it must may take for
        # dead for a while.
        self.moves.migrate(base.ADMIN, uuid, 'a3')
        self.rests('active', 'a3', uuid)
        self.down('a3')
        self.moves.evacuate(base.ADMIN, uuid)
        self.rests('active', 'a1', uuid)
        self.down('a3', down=False)
        return uuid

    def rests(self, vm_state, host, uuid):
        """All that was sent is done, and the server is there, once."""
        self.post.quiet()
        self.assertRests(vm_state, host, uuid)
        self.assertEqual([], self.unexpected())

    def is_gone(self, uuid):
        self.post.quiet()
        self.assertIsGone(uuid)
        self.assertClaimsMatch()
        self.assertEqual([], self.unexpected())

    def unexpected(self):
        """Return what receivers raised, except answers of schedulers.

        A message may be repeated after the deadline of its sender.
        """
        return [
            (kind, error) for kind, error in self.post.failures
            if kind != SELECT or not isinstance(error, (
                exception.NoValidHost, exception.ClaimConflict,
                exception.DeadlineExceeded))]

    def orders(self, times):
        """Yield all that was sent so far, in several orders."""
        sent = list(self.post.sent)
        shuffled = sent[:]
        random.Random(times).shuffle(shuffled)
        yield from (sent, sent[::-1], shuffled)

    def seen(self, uuid):
        """Return all that is to stay as it is."""
        return (self.rows(uuid), self.mapped(uuid), self.holding(uuid),
                self.running(uuid), self.listed(), self.requested(uuid))

    def assertDelivered(self, times):
        """Each message was sent once, and came so often."""
        self.assertEqual(
            {kind: times * count for kind, count in self.post.count().items()},
            dict(self.post.delivered))

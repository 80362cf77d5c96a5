# SPDX-License-Identifier: Apache-2.0
"""Servers of a whole Nova in one process, and their allocations."""

import threading

import fixtures
from nova.tests import fixtures as nova_fixtures
from nova.tests.functional import integrated_helpers

HOSTS = ('host1', 'host2', 'host3')

#: Number of polls, one every half a second. Nova's own tests give up after
#: five seconds, which is too short on a busy machine.
LOOKS = 240

#: Seconds between two checks of an idle thread for the end of its pool. Nova's
#: tests check a hundred times a second: two hundred threads then use half a
#: processor.
IDLE_S = 1.0


class ReadersFirst(nova_fixtures.ReaderWriterLock):
    """A lock that a reader can take while a writer waits for it.

    Nova's tests take one lock to read from a cell, then another lock to write
    to its database. The report of a service takes them in the opposite order.
    If a waiting writer kept readers out, two threads with one lock each would
    wait for each other forever.
    """

    has_pending_writers = False


class ProviderUsageTestCase(integrated_helpers.ProviderUsageBaseTestCase):
    """Tests in a whole Nova, with timeouts for a busy machine."""

    compute_driver = 'fake.MediumFakeDriver'

    def setUp(self):
        self.useFixture(fixtures.MonkeyPatch(
            'nova.tests.fixtures.nova.ReaderWriterLock', ReadersFirst))
        super().setUp()
        pools = {type(thread) for thread in threading.enumerate()
                 if hasattr(thread, 'MAX_IDLE_FOR')}
        for each in pools:
            # Restore the value before Nova's cleanups end the threads.
            self.addCleanup(setattr, each, 'MAX_IDLE_FOR', each.MAX_IDLE_FOR)
            each.MAX_IDLE_FOR = IDLE_S

    def _wait_for_server_parameter(
            self, server, expected_params, max_retries=LOOKS, **named):
        return super()._wait_for_server_parameter(
            server, expected_params, max(max_retries, LOOKS), **named)

    def _wait_for_assert(self, assert_func, max_retries=LOOKS, sleep=0.5):
        return super()._wait_for_assert(assert_func, max_retries, sleep)

    def _wait_for_migration_status(self, server, expected_statuses):
        return self._wait_for_assert(
            lambda: self.migration_of(server, expected_statuses))

    def migration_of(self, server, statuses):
        """Return the migration of a server with one of these statuses."""
        found = [each for each in self.api.api_get(
            '/os-migrations').body['migrations']
            if each['instance_uuid'] == server['id']]
        for each in found:
            if each['status'] in statuses:
                return each
        self.fail(f'none of {found} has one of {statuses}')


class TestCase(ProviderUsageTestCase):

    def setUp(self):
        self.flags(instances=-1, cores=-1, ram=-1, group='quota')
        super().setUp()
        self.start_computes()
        self.small = {'vcpu': 1, 'memory_mb': 64, 'disk': 1, 'ephemeral': 0}
        self.plain = self._create_flavor(**self.small)

    def start_computes(self):
        for host in HOSTS:
            self._start_compute(host)

    def post(self, count=1, flavor=None):
        """Request servers; return their uuids."""
        body = {'server': {
            **self._build_server(
                networks='none', flavor_id=flavor or self.plain),
            'min_count': count, 'max_count': count,
            'return_reservation_id': True}}
        self.notifier.reset()
        reservation = self.api.api_post('/servers', body).body[
            'reservation_id']
        return [each['id'] for each in self.api.get_servers(
            search_opts={'reservation_id': reservation})]

    def wait_for(self, servers, status):
        if status == 'ACTIVE':
            # Polls of the API would take longer.
            self.notifier.wait_for_versioned_notifications(
                'instance.create.end', len(servers), LOOKS / 2)
        return [self._wait_for_state_change({'id': each}, status)
                for each in servers]

    def assertNoLeaks(self):
        """Wait until exactly the active servers have allocations."""
        def check():
            found = {each['id']: each for each in self.api.get_servers()}
            held = {host: set(self._get_allocations_by_provider_uuid(
                self._get_provider_uuid_by_host(host))) for host in HOSTS}
            self.assertEqual({host: {
                uuid for uuid, each in found.items()
                if each['OS-EXT-SRV-ATTR:host'] == host
                and each['status'] == 'ACTIVE'} for host in HOSTS}, held)
        self._wait_for_assert(check)

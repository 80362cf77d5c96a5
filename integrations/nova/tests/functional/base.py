# SPDX-License-Identifier: Apache-2.0
"""Servers of a whole Nova in one process, and what they hold in Placement."""

import threading

import fixtures
from nova.tests import fixtures as nova_fixtures
from nova.tests.functional import integrated_helpers

HOSTS = ('host1', 'host2', 'host3')

#: How often it is looked whether something has come, every half a second.
#: Nova's own tests give up after five seconds, which are soon over where much
#: else runs.
LOOKS = 240

#: For how long an idle thread of a pool waits before it looks whether it is to
#: end. In Nova's tests it does so a hundred times a second, to end soon; of
#: two hundred threads that takes half a processor.
IDLE_S = 1.0


class ReadersFirst(nova_fixtures.ReaderWriterLock):
    """A lock that readers need not wait for while a writer waits for it.

    Nova's tests take it to read from a cell, and another one to write to its
    database. Who reports a service takes them in the other order. So while
    somebody waits to write, which keeps readers out, two who have one of them
    each wait for each other for good.
    """

    has_pending_writers = False


class Waiting(integrated_helpers.ProviderUsageBaseTestCase):
    """Tests in a whole Nova, which wait as long as a busy machine takes."""

    compute_driver = 'fake.MediumFakeDriver'

    def setUp(self):
        self.useFixture(fixtures.MonkeyPatch(
            'nova.tests.fixtures.nova.ReaderWriterLock', ReadersFirst))
        super().setUp()
        pools = {type(thread) for thread in threading.enumerate()
                 if hasattr(thread, 'MAX_IDLE_FOR')}
        for each in pools:
            # Theirs again before Nova's cleanups end them.
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
        """Return the migration of a server that has one of these statuses."""
        found = [each for each in self.api.api_get(
            '/os-migrations').body['migrations']
            if each['instance_uuid'] == server['id']]
        for each in found:
            if each['status'] in statuses:
                return each
        self.fail(f'none of {found} has one of {statuses}')


class TestCase(Waiting):

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
        """Ask for servers; return their uuids."""
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
            # To ask again and again takes longer.
            self.notifier.wait_for_versioned_notifications(
                'instance.create.end', len(servers), LOOKS / 2)
        return [self._wait_for_state_change({'id': each}, status)
                for each in servers]

    def assertNothingLeaked(self):
        """Wait until allocations are those of active servers, each there."""
        def check():
            found = {each['id']: each for each in self.api.get_servers()}
            held = {host: set(self._get_allocations_by_provider_uuid(
                self._get_provider_uuid_by_host(host))) for host in HOSTS}
            self.assertEqual({host: {
                uuid for uuid, each in found.items()
                if each['OS-EXT-SRV-ATTR:host'] == host
                and each['status'] == 'ACTIVE'} for host in HOSTS}, held)
        self._wait_for_assert(check)

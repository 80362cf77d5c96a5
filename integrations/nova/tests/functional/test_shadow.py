# SPDX-License-Identifier: Apache-2.0
"""The shadow beside Nova's scheduler, in a whole Nova in one process."""

import fixtures
import nova.conf
from nova import rpc
import oslo_messaging
import sqlalchemy as sa

from cellsched import clock
from cellsched.db import session
from cellsched_nova import options
from cellsched_nova.shadow import comparison
from cellsched_nova.shadow.scheduler import Endpoint
from cellsched_nova.shadow.scheduler import listener
from cellsched_nova.shadow.scheduler import make_shadow
from tests.functional import base

CONF = nova.conf.CONF

#: An image of Nova's fixture that no server uses.
OTHER_IMAGE = 'a2459075-d96c-40d5-893e-577ff92e721c'


#: The first words of statements that write nothing.
READS = ('SELECT', 'PRAGMA', 'SAVEPOINT', 'RELEASE', 'BEGIN')

#: The periodic write of Nova's services.
HEARTBEAT = 'UPDATE services SET report_count'


class TwoNotifiers:
    """Notifies two notifiers: tests wait for messages of the first."""

    def __init__(self, *notifiers):
        self._notifiers = notifiers

    def is_enabled(self):
        return True

    def prepare(self, **options):
        return TwoNotifiers(*(
            each.prepare(**options) for each in self._notifiers))

    def __getattr__(self, name):
        def notify_both(*args, **named):
            for each in self._notifiers:
                getattr(each, name)(*args, **named)
        return notify_both


class TestCase(base.ProviderUsageTestCase):

    notification_format = 'versioned'
    shadow_timeout = 60

    def setUp(self):
        super().setUp()
        options.register_opts(CONF)
        for host in base.HOSTS:
            self._start_compute(host)
        self.flags(notification_format=self.notification_format,
                   group='notifications')
        self.flags(track_instance_changes=False, group='filter_scheduler')
        self.flags(full_refresh_interval=1, no_valid_host_text='cellsched',
                   shadow_timeout=self.shadow_timeout,
                   group='cellsched')
        for name, topic in (
                ('NOTIFIER', 'versioned_notifications'),
                ('LEGACY_NOTIFIER', 'notifications')):
            self.stub_out(f'nova.rpc.{name}', TwoNotifiers(
                getattr(rpc, name), oslo_messaging.Notifier(
                    oslo_messaging.get_notification_transport(CONF),
                    serializer=rpc.RequestContextSerializer(
                        rpc.JsonPayloadSerializer()),
                    driver='messaging', topics=[topic])))
        self.scheduler_service.manager.notifier = rpc.get_notifier('scheduler')
        path = self.useFixture(fixtures.TempDir()).path
        databases = session.Databases(clock.Clock())
        self.addCleanup(databases.close)
        self.store = comparison.ComparisonStore(
            databases.get(f'sqlite:///{path}/records', 'records'), 3600)
        self.listen(Endpoint(
            make_shadow(CONF, self.store)))

    def listen(self, endpoint):
        server = listener(CONF, endpoint)
        server.start(override_pool_size=1)
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)

    def found(self):
        return [each for group in self.store.groups()
                for each in self.store.find(group.example.instance_uuid)]

    def assertAgreed(self, requests):
        """Wait for this many comparisons, and assert that all agree."""
        self._wait_for_assert(lambda: self.assertEqual(
            requests, sum(each.requests for each in self.store.groups())))
        self.assertEqual(
            [], [each for each in self.store.groups()
                 if not each.outcome.agrees])

    def boot(self, **hints):
        body = {'server': self._build_server(networks='none')}
        if hints:
            body['os:scheduler_hints'] = hints
        return self._wait_for_state_change(
            self.api.post_server(body), 'ACTIVE')


class TestVersioned(TestCase):

    def test_builds_agree(self):
        for _ in range(4):
            self.boot()

        self.assertAgreed(4)

    def test_builds_of_a_group_agree(self):
        group = self.api.post_server_groups(
            {'name': 'apart', 'policy': 'anti-affinity'})
        for _ in base.HOSTS:
            self.boot(group=group['id'])

        self.assertAgreed(3)

    def test_request_for_several_servers_is_a_single_comparison(self):
        server = self._build_server(networks='none')
        server.update(min_count=3, max_count=3)
        self.api.post_server({'server': server})
        self._wait_for_assert(lambda: self.assertEqual(
            ['ACTIVE'] * 3,
            [each['status'] for each in self.api.get_servers()]))

        self.assertAgreed(1)
        [one] = self.found()
        self.assertEqual(2, one.others)

    def test_moves_agree(self):
        server = self.boot()
        larger = self.api.get_flavors()[1]['id']
        self._confirm_resize(self._resize_server(server, larger))
        self._confirm_resize(self._migrate_server(server))

        self.assertAgreed(3)

    def test_evacuation_agrees(self):
        server = self.boot()
        source = self.api.get_server(server['id'])['OS-EXT-SRV-ATTR:host']
        self.computes[source].stop()
        [service] = self.api.get_services(
            binary='nova-compute', host=source)
        self.api.put_service_force_down(service['id'], True)
        self._evacuate_server(server)

        self.assertAgreed(2)

    def test_rebuild_with_another_image_agrees(self):
        self._rebuild_server(self.boot(), OTHER_IMAGE)

        self.assertAgreed(2)


class DelayedEndpoint:
    """Collects notifications until pass_on() is called."""

    filter_rule = Endpoint.filter_rule

    def __init__(self, endpoint):
        self._endpoint = endpoint
        self.received = []

    def info(self, *arguments):
        self.received.append(arguments)

    def pass_on(self):
        for arguments in self.received:
            self._endpoint.info(*arguments)


class TestLate(TestCase):
    """Notifications are received after Nova has finished."""

    def listen(self, endpoint):
        self.later = DelayedEndpoint(endpoint)
        super().listen(self.later)

    def wait_for(self, requests):
        self._wait_for_assert(lambda: self.assertEqual(
            2 * requests, len(self.later.received)))

    def pass_on(self, requests):
        self.wait_for(requests)
        self.later.pass_on()

    def note_writes(self):
        """Return a list that receives the writes to all databases."""
        written = []

        def note(connection, cursor, statement, *arguments):
            if statement.split()[0].upper() not in READS and (
                    not statement.startswith(HEARTBEAT)):
                written.append((str(connection.engine.url), statement))

        sa.event.listen(sa.engine.Engine, 'before_cursor_execute', note)
        self.addCleanup(sa.event.remove, sa.engine.Engine,
                        'before_cursor_execute', note)
        return written

    def test_only_comparisons_are_written(self):
        self.boot()
        written = self.note_writes()

        self.pass_on(1)

        self.assertAgreed(1)
        self.assertEqual([], [
            (url, statement) for url, statement in written
            if not (url.endswith('/records')
                    and 'nova_comparisons' in statement)])
        # The list has all writes.
        self.assertIn('INSERT INTO nova_comparisons', str(written))

    def test_group_with_an_already_built_last_server_agrees(self):
        group = self.api.post_server_groups(
            {'name': 'apart', 'policy': 'anti-affinity'})
        self.boot()
        self.boot(group=group['id'])
        self.wait_for(2)
        self.later.received.clear()
        self.boot(group=group['id'])

        self.pass_on(1)

        self.assertAgreed(1)
        [one] = self.found()
        self.assertIsNotNone(one.host)


class TestRefused(TestCase):

    shadow_timeout = 5

    def listen(self, endpoint):
        self.endpoint = endpoint
        super().listen(endpoint)

    def test_refusal_agrees(self):
        group = self.api.post_server_groups(
            {'name': 'apart', 'policy': 'anti-affinity'})
        for _ in base.HOSTS:
            self.boot(group=group['id'])
        refused = self._wait_for_state_change(self.api.post_server({
            'server': self._build_server(networks='none'),
            'os:scheduler_hints': {'group': group['id']}}), 'ERROR')

        def find():
            self.endpoint.expire()
            return self.store.find(refused['id'])

        self._wait_for_assert(
            lambda: self.assertEqual(1, len(find())))
        [one] = find()
        self.assertEqual('neither found a host', str(one.verdict.outcome))
        self.assertIn('share of the server group', one.verdict.detail)


class TestUnversioned(TestCase):

    notification_format = 'unversioned'

    def test_builds_agree(self):
        for _ in range(3):
            self.boot()
        group = self.api.post_server_groups(
            {'name': 'together', 'policy': 'affinity'})
        for _ in range(2):
            self.boot(group=group['id'])

        self.assertAgreed(5)

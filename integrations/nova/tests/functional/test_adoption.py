# SPDX-License-Identifier: Apache-2.0
"""Nova's scheduler is replaced step by step, and restored.

Services run in one process with one Placement. The first free scheduler takes
a request from the queue.
"""

import contextlib
import datetime
import io
import threading
import types

import fixtures
from nova.cmd import manage
import nova.conf
from nova import context as nova_context
from nova.db.api import api as api_db
from nova import service as nova_service
from nova.tests import fixtures as nova_fixtures
import sqlalchemy as sa

from cellsched.claims.placement import messages
from cellsched_nova.manager import install_manager
from cellsched_nova import options
from cellsched_nova import records
from tests.functional import base

CONF = nova.conf.CONF

#: Nova's own managers of services.
NOVA_MANAGERS = dict(nova_service.SERVICE_MANAGERS)

#: Host names of the schedulers.
FIRST, SECOND = 'scheduler', 'canary'

#: Maximum number of requests until both schedulers have answered.
ROUNDS_MAX = 20


class Scheduler:
    """A running scheduler.

    :ivar decided: instances of its requests
    """

    def __init__(self, started):
        self.service = started
        self.decided = []
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        select = started.manager.select_destinations

        def note(manager, context, *args, **named):
            self.decided += named['instance_uuids']
            self._may_go_on.wait(600)
            return select(context, *args, **named)

        # Nova waits for running methods when it stops a service.
        started.manager.select_destinations = types.MethodType(
            note, started.manager)

    @contextlib.contextmanager
    def held(self):
        """Hold the requests after their start."""
        self._may_go_on.clear()
        try:
            yield
        finally:
            self._may_go_on.set()

    def stop(self):
        """Stop the scheduler, and make its last report old."""
        self.service.stop()
        record = self.service.service_ref
        record.last_seen_up -= datetime.timedelta(
            seconds=2 * CONF.service_down_time)
        record.save()


class TestAdoption(base.TestCase):

    def setUp(self):
        options.register_opts(CONF)
        path = self.useFixture(fixtures.TempDir()).path
        self.flags(records_connection=f'sqlite:///{path}/records',
                   group='cellsched')
        # Services report their state, and finish requests when stopped.
        self.flags(report_interval=1, graceful_shutdown_timeout=800,
                   manager_shutdown_timeout=600)
        self.addCleanup(nova_service.SERVICE_MANAGERS.update, NOVA_MANAGERS)
        super().setUp()
        self.larger = self._create_flavor(**{**self.small, 'memory_mb': 128})
        self.theirs = Scheduler(self.scheduler_service)

    def start(self, host):
        """Start another scheduler with this host name."""
        return Scheduler(self.useFixture(
            nova_fixtures.ServiceFixture('scheduler', host)).service)

    def start_ours(self, host):
        install_manager()
        return self.start(host)

    def start_nova(self, host):
        nova_service.SERVICE_MANAGERS.update(NOVA_MANAGERS)
        return self.start(host)

    def build(self, count=1):
        servers = self.post(count)
        self.wait_for(servers, 'ACTIVE')
        return servers

    def move(self, server):
        """Migrate a server, and then resize it."""
        self._confirm_resize(self._migrate_server({'id': server}))
        self._confirm_resize(self._resize_server(
            {'id': server}, self.larger))

    def use(self, *schedulers, moving=False):
        """Build servers until each of these schedulers has decided.

        :param moving: whether to also migrate and resize a server
        """
        for each in schedulers:
            each.decided.clear()
        built = self.build(3)
        if moving:
            self.move(built[0])
        for _ in range(ROUNDS_MAX):
            if all(each.decided for each in schedulers):
                break
            built += self.build()
        self.assertEqual(
            {*built}, {uuid for each in schedulers for uuid in each.decided})
        for each in schedulers:
            self.assertTrue(each.decided, each.service)
        self.assertHeldByServers()

    def assertHeldByServers(self):
        """Assert that exactly the active servers have their allocations."""
        self.assertNoLeaks()
        for server in self.api.get_servers():
            flavor = server['flavor']
            self.assertEqual(
                {self._get_provider_uuid_by_host(
                    server['OS-EXT-SRV-ATTR:host']): {
                        'VCPU': flavor['vcpus'], 'MEMORY_MB': flavor['ram'],
                        'DISK_GB': flavor['disk']}},
                {provider: held['resources'] for provider, held in
                 self._get_allocations_by_server_uuid(server['id']).items()})

    def listed(self):
        return {each['host']: each for each
                in self.api.get_services(binary='nova-scheduler')}

    def assertListed(self, **states):
        """Assert the schedulers in Nova's list of services."""
        def check():
            self.assertEqual(states, {
                host: each['state'] for host, each in self.listed().items()})

        check()
        before = self.listed()
        # Only running services report again.
        self._wait_for_assert(lambda: [self.assertNotEqual(
            before[host]['updated_at'], self.listed()[host]['updated_at'])
            for host, state in states.items() if state == 'up'])
        check()

    def tables(self):
        """Return the names of tables in Nova's databases."""
        found = {'api': sa.inspect(api_db.get_engine()).get_table_names()}
        for name, cell in self.cell_mappings.items():
            with nova_context.target_cell(
                    nova_context.get_admin_context(), cell) as context:
                found[name] = sa.inspect(
                    context.db_connection.writer.get_engine()
                ).get_table_names()
        return found

    def orphans(self):
        """Return the providers with orphans in Nova's audit."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            manage.PlacementCommands().audit(verbose=True)
        return {
            line.partition('Resource Provider ')[2].partition(' ')[0]
            for line in output.getvalue().splitlines()
            if 'can be deleted' in line}

    def post_until(self, decided):
        """Request servers until this scheduler decides on one; return all."""
        posted = []
        while not {*posted} & {*decided}:
            self.assertLess(len(posted), ROUNDS_MAX)
            posted += self.post()
            self._wait_for_assert(lambda: self.assertIn(
                posted[-1], self.canary.decided + self.theirs.decided))
        return posted

    def stop_while_deciding(self):
        """Stop the canary while it handles a request."""
        with self.canary.held():
            begun = self.post_until(self.canary.decided)
            stopping = threading.Thread(target=self.canary.stop)
            stopping.start()
            self.addCleanup(stopping.join)
            begun += self.post_until(self.theirs.decided)
            self._wait_for_state_change({'id': begun[-1]}, 'ACTIVE')
            self.assertTrue(stopping.is_alive())
        for uuid in begun:
            self._wait_for_state_change({'id': uuid}, 'ACTIVE')
        stopping.join()

    def test_adoption_steps_can_be_reverted(self):
        tables = self.tables()
        self.use(self.theirs)

        self.canary = self.start_ours(SECOND)
        self.use(self.theirs, self.canary, moving=True)
        self.assertListed(scheduler='up', canary='up')

        ours = self.start_ours(FIRST)
        self.theirs.stop()
        self.use(ours, self.canary)
        ours.stop()
        self.use(self.canary, moving=True)
        self.assertListed(scheduler='down', canary='up')

        self.theirs = self.start_nova(FIRST)
        self.use(self.theirs, self.canary)
        self.stop_while_deciding()
        self.use(self.theirs, moving=True)

        self.assertListed(scheduler='up', canary='down')
        [service] = self.api.get_services(binary='nova-scheduler', host=SECOND)
        self.api.api_delete(f'/os-services/{service["id"]}')
        self.assertListed(scheduler='up')
        self.assertEqual(tables, self.tables())
        self.assertGuardsRemain()
        self.assertExplained(self.canary)

    def assertGuardsRemain(self):
        """Assert that Placement has guards and hosts."""
        found = {each['uuid']: each['name']
                 for each in self._get_all_providers()}
        guards = {uuid: name for uuid, name in found.items()
                  if name not in base.HOSTS}
        self.assertLessEqual(guards.keys(), messages.GUARDS)
        self.assertTrue(guards)
        for name in guards.values():
            self.assertRegex(name, r'^cellsched-guard-\d+$')
        self.assertEqual({*base.HOSTS}, {*found.values()} - {*guards.values()})
        self.assertLessEqual(self.orphans(), guards.keys())

    def assertExplained(self, scheduler):
        """Assert that each decision was recorded."""
        database = records.open_database(CONF)
        for uuid in scheduler.decided:
            self.assertTrue(records.find(database, uuid, 1), uuid)

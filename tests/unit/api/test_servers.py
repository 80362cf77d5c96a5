# SPDX-License-Identifier: Apache-2.0
"""Servers: create, get, list, delete."""

from concurrent import futures
import contextlib
import datetime
import threading
import time
from types import MappingProxyType

from amqp import exceptions as amqp_exc
from kombu import exceptions as kombu_exc
import oslo_messaging
import sqlalchemy as sa

from cellsched.api import authorization
from cellsched.api import flavors
from cellsched.api import server_groups
from cellsched.api import servers
from cellsched.api import validation
from cellsched.cells.cell0 import Cell0
from cellsched.cells import gather
from cellsched.claims import base as claims_base
from cellsched.claims import memory
from cellsched import context
from cellsched.db.api import build_requests
from cellsched.db.api import flavors as flavor_rows
from cellsched.db.api import instance_mappings
from cellsched.db.api import models
from cellsched.db.cell import instance_children
from cellsched.db.cell import instances
from cellsched.db.cell import models as cell_models
from cellsched.db.cell import on_host
from cellsched.db.cell import services
from cellsched import exception
from cellsched.hardware import aliases
from cellsched.listing import servers as listing
from cellsched import objects
from cellsched.quota import noop
from cellsched.testing import clients
from tests.unit.api import hostile
from tests.unit.cells import base
from tests.unit.db import samples
from tests.unit.quota import projects
from tests.unit import racing

PROVIDER = '22222222-2222-4222-8222-222222222222'

#: Servers that hints name.
NAMED = ['33333333-3333-4333-8333-333333333333']

#: What sending a message may raise, drivers of others included.
FAILURES = (
    oslo_messaging.MessageDeliveryFailure('to amqp://user:s3cret@broker'),
    oslo_messaging.MessagingTimeout('late'),
    kombu_exc.OperationalError('away'),
    amqp_exc.AccessRefused('wrong password'),
    amqp_exc.NotAllowed('no such virtual host'),
    ConnectionResetError('reset'),
    RuntimeError('a driver of somebody'),
)


class ServersTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.add_cell0()
        self.cell = self.add_cell('cell1')
        executor = futures.ThreadPoolExecutor(2)
        self.addCleanup(executor.shutdown)
        reader = listing.ServerListing(
            self.database, self.cells, gather.Gatherer(
                executor, self.targets, self.clock, 30))
        self.conductor = clients.FakeConductor()
        self.compute = clients.FakeComputeAPIs()
        self.claims = memory.MemoryClaims()
        self.claims.set_inventory(
            PROVIDER, {'VCPU': claims_base.Inventory(100)})
        self.servers = servers.Servers(
            authorization.LocalOperator(), self.database, self.targets, reader,
            lambda: self.conductor, lambda: self.compute, self.claims,
            self.clock,
            noop.NoopQuotaDriver(projects.options(), self.clock),
            validation.ServerBounds(
                10, 5, lambda: frozenset({'different_host'})),
            aliases=self.aliases())
        flavors.Flavors(
            authorization.LocalOperator(), self.database, self.clock
        ).create(
            context.admin(), 'small', 2, 512, 10, 3, 100, 'f1')

    def aliases(self):
        """Return the aliases of PCI devices."""
        return {}

    def create(self, name='web', flavor='small', **wishes):
        return self.servers.create(self.context, name, flavor, **wishes)

    def rows(self, *tables):
        """Return how many rows there are in these tables."""
        return [self.read(self.database, lambda connection: connection.scalar(
            sa.select(sa.func.count()).select_from(table)))
            for table in tables]

    def written(self):
        return self.rows(models.build_requests, models.request_specs,
                         models.instance_mappings)

    def put(self, uuid, cell, **fields):
        """Bring a server that was accepted into a cell."""
        self.write(self.database, build_requests.delete, [uuid])
        self.decide(uuid, cell)
        self.add_row(uuid, cell, **fields)

    def decide(self, uuid, cell):
        self.write(self.database, instance_mappings.decide, [uuid], cell.id,
                   samples.NOW)

    def add_row(self, uuid, cell, **fields):
        self.write(self.targets.database(cell), instances.create, [
            samples.instance(uuid, **fields)], samples.NOW)

    def claim(self, uuid):
        self.claims.claim([claims_base.Claim(uuid, PROVIDER, {'VCPU': 1})])

    def row(self, uuid, cell):
        return self.read(self.targets.database(cell), instances.get, uuid)


class TestCreate(ServersTestCase):

    def test_request_has_the_image_of_the_root_volume(self):
        root = {'source_type': 'image', 'destination_type': 'volume',
                'image_id': 'image', 'boot_index': 0, 'volume_size': 9}
        [uuid] = self.create(block_device_mappings=[
            {**root, 'image_id': 'other', 'boot_index': 1}, root])

        [leased] = self.write(
            self.database, build_requests.lease, [uuid], 'me', 0, 1)

        self.assertTrue(leased.spec.is_bfv)
        self.assertEqual('image', leased.spec.image.id)
        self.assertEqual({'VCPU': 2, 'MEMORY_MB': 512, 'DISK_GB': 4},
                         leased.spec.resources())

    def test_accepted_server_has_the_requested_fields(self):
        [uuid] = self.create(
            image_ref='image', availability_zone='zone',
            hints={'different_host': NAMED})

        [leased] = self.write(
            self.database, build_requests.lease, [uuid], 'me', 0, 1)
        instance, spec = leased.request.instance, leased.spec
        self.assertEqual(
            ('web', 'user', 'project', 'building', 'scheduling', 2, 512, 10,
             3, 'image', 'zone'),
            tuple(instance.get(name) for name in (
                'display_name', 'user_id', 'project_id', 'vm_state',
                'task_state', 'vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb',
                'image_ref', 'availability_zone')))
        self.assertEqual(
            (uuid, 1, 'zone', NAMED, 'small'),
            (spec.instance_uuid, spec.num_instances, spec.availability_zone,
             spec.hint('different_host'), spec.flavor.name))
        self.assertEqual({'VCPU': 2, 'MEMORY_MB': 512, 'DISK_GB': 14},
                         spec.resources())
        self.assertFalse(spec.is_bfv)
        self.assertEqual(1, leased.min_count)
        mapping = self.read(
            self.database, instance_mappings.get_many, [uuid])[uuid]
        self.assertEqual((None, 'project', 'user', False), (
            mapping.cell_mapping, mapping.project_id, mapping.user_id,
            mapping.queued_for_delete))

    def test_conductor_gets_a_single_message_for_all_servers(self):
        uuids = self.create(min_count=2, max_count=3)

        self.assertEqual(3, len(set(uuids)))
        [sent] = self.conductor.sent
        self.assertEqual(
            ('build_and_schedule', None, {'instance_uuids': uuids}),
            (sent.method, sent.host, sent.arguments))
        self.assertEqual(self.context.request_id, sent.context.request_id)
        leased = self.write(
            self.database, build_requests.lease, uuids, 'me', 0, 1)
        self.assertEqual({2}, {each.min_count for each in leased})
        self.assertEqual(1, len({
            each.request.instance.reservation_id for each in leased}))

    def test_servers_of_a_request_have_numbers(self):
        several = [self.servers.get(self.context, uuid).name
                   for uuid in self.create(min_count=3)]
        [one] = self.create(min_count=1)

        self.assertEqual(['web-1', 'web-2', 'web-3'], several)
        self.assertEqual('web', self.servers.get(self.context, one).name)

    def test_uuid_in_capitals_is_the_same_server(self):
        [one] = self.create()
        capitals = one.upper()

        self.servers.update(self.context, capitals, 'renamed')
        self.assertEqual(
            (one, 'renamed'), self.servers.get(self.context, capitals)[:2])
        self.assertEqual(one, self.servers.find(self.context, capitals))
        self.servers.delete(self.context, capitals)

        self.assertRaises(exception.InstanceNotFound, self.servers.get,
                          self.context, one)

    def test_flavor_is_found_by_id(self):
        [uuid] = self.create(flavor='f1')

        self.assertEqual([1, 1, 1], self.written())

    def test_disabled_and_private_flavors_are_refused(self):
        user = context.member('user', 'project')
        for who, column, value, is_open in (
                (self.context, 'disabled', True, False),
                (user, 'is_public', False, False),
                (context.admin(), 'is_public', False, True)):
            self.write(self.database, lambda connection: connection.execute(
                sa.update(models.flavors).values(
                    **{'disabled': False, 'is_public': True, column: value})))

            if is_open:
                self.servers.create(who, 'web', 'small')
            else:
                self.assertRaises(
                    exception.FlavorNotFound, self.servers.create, who, 'web',
                    'small')

    def test_unknown_flavor_is_refused(self):
        self.assertRaises(
            exception.FlavorNotFound, self.create, flavor='giant')

        self.assertEqual([0, 0, 0], self.written())

    def test_server_is_accepted_while_messages_to_conductors_fail(self):
        for failure in FAILURES:
            self.logs.reset_output()
            self.conductor.failure = failure

            [uuid] = self.create()

            self.assertEqual(
                'BUILD', self.servers.get(self.context, uuid).status)
            [line] = self.logs.output.splitlines()
            self.assertIn(uuid, line)
            self.assertIn(self.context.request_id, line)
            self.assertIn(type(failure).__name__, line)
            self.assertNotIn('s3cret', line)

    def test_bad_input_is_refused_without_a_row(self):
        wishes = [{field: value} for value in hostile.NAMES
                  for field in ('name', 'flavor')]
        wishes += [{field: value} for value in hostile.NAMES
                   if value is not None
                   for field in ('image_ref', 'availability_zone')]
        wishes += [{'min_count': count, 'max_count': count}
                   for count in hostile.COUNTS]
        wishes += [{'max_count': count}
                   for count in hostile.COUNTS if count is not None]
        wishes += [{'hints': hints} for hints in hostile.HINTS]
        for wish in wishes:
            error = self.assertRaises(
                exception.InvalidField, self.create, **wish)
            self.assertTrue(str(error).isprintable(), str(error))

        self.assertEqual([0, 0, 0], self.written())
        self.assertEqual([], self.conductor.sent)

    def test_lost_connection_does_not_matter(self):
        accept = self.servers._accept_all

        def lose(*args):
            self.servers._accept_all = accept
            if is_made:
                accept(*args)
            raise exception.ConnectionLost(
                schema='API', url='there', reason='it ended')

        number = 0
        for is_made in False, True:
            for count in 1, 2:
                self.servers._accept_all = lose

                uuids = self.servers.create(
                    self.context, 'web', 'small', min_count=count)

                number += count
                self.assertEqual([number] * 3, self.written())
                self.assertEqual(sorted(uuids), sorted(
                    self.conductor.sent[-1][-1]['instance_uuids']))

    def test_zone_with_a_host_besides_a_requested_host_is_refused(self):
        for field in 'host', 'hypervisor_hostname':
            error = self.assertRaises(
                exception.InvalidField, self.create,
                availability_zone='zone:a', **{field: 'a'})
            self.assertEqual('availability_zone', error.field)
        self.assertEqual([0, 0, 0], self.written())

    def test_request_with_a_duplicate_uuid_writes_no_row(self):
        twice = servers.Servers(
            authorization.LocalOperator(), self.database, self.targets, None,
            lambda: self.conductor, lambda: self.compute, self.claims,
            self.clock,
            noop.NoopQuotaDriver(projects.options(), self.clock),
            validation.ServerBounds(10, 5, frozenset),
            new_uuid=lambda: '11111111-1111-4111-8111-111111111111')

        self.assertRaises(exception.ConstraintViolated, twice.create,
                          self.context, 'web', 'small', min_count=2)

        self.assertEqual([0, 0, 0], self.written())
        self.assertEqual([], self.conductor.sent)


class TestGetAndList(ServersTestCase):

    def at_once(self, number, before=lambda: None, last=None):
        """Create servers of which all but the first share a transaction.

        :param before: called when the second transaction begins
        :param last: the arguments of the last one
        :returns: the calls, and the number of transactions
        """
        begun, go_on, writers = threading.Event(), threading.Event(), []
        writer = self.database.writer

        def counted():
            writers.append(None)
            if len(writers) == 1:
                begun.set()
                self.assertTrue(go_on.wait(60))
            else:
                before()
            return writer()

        self.database.writer = counted
        with futures.ThreadPoolExecutor(number) as pool:
            calls = [pool.submit(self.create)]
            self.assertTrue(begun.wait(60))
            calls += [pool.submit(self.create) for _ in range(number - 2)]
            calls.append(pool.submit(self.create, **(last or {})))
            while len(self.servers._accepting._waiting) < number - 1:
                time.sleep(0.001)
            go_on.set()
        del self.database.writer
        return calls, len(writers)

    def test_concurrent_requests_share_a_transaction(self):
        calls, transactions = self.at_once(4)

        self.assertEqual(2, transactions)
        uuids = {uuid for call in calls for uuid in call.result()}
        self.assertEqual(4, len(uuids))
        self.assertEqual([4, 4, 4], self.written())

    def test_request_with_a_duplicate_uuid_fails_alone(self):
        names = iter(['r1', 'a', 'r2', 'b', 'r3', 'a', 'r4', 'c'])
        lock = threading.Lock()

        def new_uuid():
            with lock:
                return next(names)

        self.servers._new_uuid = new_uuid
        calls, _ = self.at_once(4)

        errors = [call.exception() for call in calls]
        self.assertEqual(3, errors.count(None))
        self.assertEqual([3, 3, 3], self.written())

    def test_refused_request_fails_alone(self):
        self.servers._quotas.keeps_limits = True

        calls, transactions = self.at_once(4, last={'flavor': 'unknown'})

        self.assertEqual(2, transactions)
        self.assertEqual([None] * 3, [each.exception() for each in calls[:3]])
        self.assertIsInstance(
            calls[3].exception(), exception.FlavorNotFound)
        self.assertEqual([3, 3, 3], self.written())

    def test_limits_of_another_service_are_read_before_a_transaction(self):
        begun, taken = [], []
        writer, accept = self.database.writer, self.servers._quotas.accept

        def counted():
            begun.append(None)
            return writer()

        def noted(*args):
            taken.append(len(begun))
            return accept(*args)

        self.database.writer = counted
        self.addCleanup(delattr, self.database, 'writer')
        self.servers._quotas.accept = noted
        for keeps in False, True:
            self.servers._quotas.keeps_limits = keeps
            self.create()

        self.assertEqual([0, 2], taken)

    def test_transaction_of_unknown_outcome_is_not_repeated(self):
        def fail():
            raise exception.DatabaseUnreachable(
                schema='API', url='sqlite://', reason='away')

        calls, transactions = self.at_once(3, before=fail)

        self.assertEqual(2, transactions)
        self.assertIsNone(calls[0].exception())
        for call in calls[1:]:
            self.assertIsInstance(
                call.exception(), exception.DatabaseUnreachable)
        # Each thread has a traceback of its own.
        self.assertIsNot(calls[1].exception(), calls[2].exception())
        self.assertEqual([1, 1, 1], self.written())

    def test_invalid_ids_are_refused(self):
        for bad in hostile.NAMES:
            for method in self.servers.get, self.servers.delete:
                error = self.assertRaises(
                    exception.InvalidField, method, self.context, bad)
                self.assertEqual('id', error.field)

    def test_unknown_ids_are_not_found(self):
        for unknown in (samples.uuids(1)[0], "' OR 1=1 --", '%', '../x',
                        '%s%n', '0' * 36):
            for method in self.servers.get, self.servers.delete:
                self.assertRaises(exception.InstanceNotFound, method,
                                  self.context, unknown)

    def test_limit_has_bounds(self):
        self.create(min_count=7)

        for limit, found in ((None, 5), (0, 0), (1, 1), (5, 5)):
            page = self.servers.list(self.context, limit=limit)
            self.assertEqual(found, len(page.servers))
        for limit in -1, 6, 2 ** 63, 10 ** 9, '1', 1.0, True:
            error = self.assertRaises(
                exception.InvalidField, self.servers.list, self.context,
                limit=limit)
            self.assertEqual('limit', error.field)


class TestDelete(ServersTestCase):

    def setUp(self):
        super().setUp()
        [self.uuid] = self.create()
        self.claim(self.uuid)

    def delete(self):
        self.servers.delete(self.context, self.uuid)

    def put_on_host(self, service=MappingProxyType({})):
        """Put the server on h1, which has reported; without a service: None.

        A service may be ``forced_down``, or its report ``age_s`` old.
        """
        database = self.targets.database(self.cell)
        self.put(self.uuid, self.cell, vm_state='active', task_state=None,
                 host='h1')
        with database.writer() as connection:
            connection.execute(sa.delete(cell_models.services))
            if service is None:
                return
            services.report(
                connection, 'service', 'h1', services.COMPUTE, 'compute',
                database.now() - datetime.timedelta(
                    seconds=service.get('age_s', 0)))
            services.set_forced_down(
                connection, 'h1', service.get('forced_down', False),
                database.now())

    def assertIsGone(self):
        self.assertRaises(exception.InstanceNotFound, self.servers.get,
                          self.context, self.uuid)
        self.assertEqual([], self.servers.list(self.context).servers)
        self.assertEqual({}, self.claims.claims_of([self.uuid]))

    def sent(self):
        return [(each.method, each.host, each.arguments['instance'].uuid)
                for client in self.compute.clients.values()
                for each in client.sent]

    def test_server_on_no_host_is_deleted_at_once(self):
        self.delete()
        for fact, arrange in (
                ('it has no cell', lambda: None),
                ('its cell has no row', lambda: self.decide(
                    self.uuid, self.cell)),
                ('its cell has a row, and it has a request', lambda: (
                    self.decide(self.uuid, self.cell),
                    self.add_row(self.uuid, self.cell))),
                ('its row has no host', lambda: self.put(
                    self.uuid, self.cell, vm_state='error', task_state=None)),
                ('it is in cell0', lambda: self.put(
                    self.uuid, self.cells.cell0(), vm_state='error'))):
            with self.subTest(fact):
                [self.uuid] = self.create()
                self.claim(self.uuid)
                arrange()

                self.delete()

                self.assertIsGone()
                self.assertEqual([], self.sent())
                self.assertEqual([0], self.rows(models.build_requests))
                mapping = self.read(
                    self.database, instance_mappings.get_many,
                    [self.uuid])[self.uuid]
                self.assertTrue(mapping.queued_for_delete)

    def test_server_on_a_host_is_terminated_by_the_host(self):
        self.put_on_host()

        for times in range(1, 3):
            self.delete()

            self.assertEqual(
                [('terminate_instance', 'h1', self.uuid)] * times,
                self.sent())
            self.assertEqual(
                'deleting',
                self.servers.get(self.context, self.uuid).task_state)
            # What it holds is its host's to give back.
            self.assertNotEqual({}, self.claims.claims_of([self.uuid]))

    def test_server_on_a_down_host_is_deleted_at_once(self):
        self.delete()
        for down in ({'forced_down': True}, {'age_s': 61}, None):
            [self.uuid] = self.create()
            self.claim(self.uuid)
            self.put_on_host(down)

            self.delete()

            self.assertIsGone()
            self.assertEqual(
                'h1', self.read(self.targets.database(self.cell),
                                on_host.get, self.uuid).host)

    def test_deletion_is_accepted_while_messages_to_the_host_fail(self):
        self.put_on_host()
        transport = self.targets.target_cell(
            self.context, self.cell).cell.transport
        client = self.compute.get(transport)
        for failure in FAILURES:
            self.logs.reset_output()
            client.failure = failure

            self.delete()

            # The agent of the host looks for this.
            self.assertEqual('deleting', self.servers.get(
                self.context, self.uuid).task_state)
            [line] = self.logs.output.splitlines()
            for word in ('cell1', 'h1', self.uuid, self.context.request_id):
                self.assertIn(word, line)
            self.assertNotIn('s3cret', line)

    def test_repeated_deletion_repeats_the_lost_message_to_the_host(self):
        self.put_on_host()
        transport = self.targets.target_cell(
            self.context, self.cell).cell.transport
        client = self.compute.get(transport)
        client.failure = oslo_messaging.MessageDeliveryFailure('away')
        self.delete()

        client.failure = None
        self.delete()

        self.assertEqual([('terminate_instance', 'h1', self.uuid)],
                         self.sent())

    def test_server_of_another_project_stays(self):
        stranger = context.RequestContext(project_id='other')

        self.assertRaises(exception.InstanceNotFound, self.servers.delete,
                          stranger, self.uuid)

        self.assertEqual('BUILD',
                         self.servers.get(self.context, self.uuid).status)
        self.servers.delete(context.admin(), self.uuid)
        self.assertIsGone()


class TestFlavorOfServer(ServersTestCase):

    def test_server_keeps_the_flavor_of_its_request(self):
        kept = flavors.Flavors(
            authorization.LocalOperator(), self.database, self.clock)
        [uuid] = self.create()
        kept.delete(context.admin(), 'small')
        kept.create(context.admin(), 'small', 8, 8192)

        [leased] = self.write(
            self.database, build_requests.lease, [uuid], 'me', 0, 1)

        self.assertIsInstance(leased.spec.flavor, objects.Flavor)
        self.assertEqual((2, 512), (
            leased.spec.flavor.vcpus, leased.request.instance.memory_mb))


class TestRevision(ServersTestCase):

    def setUp(self):
        super().setUp()
        [self.uuid] = self.create(tags=['b', 'a', 'b'])

    def change(self):
        self.servers.update(self.context, self.uuid, name='new')
        self.servers.set_tags(self.context, self.uuid, ['c'])

    def show(self):
        found = self.servers.get(self.context, self.uuid)
        return found.name, found.tags

    def test_request_is_changed_and_not_the_row(self):
        self.assertEqual(('web', ('a', 'b')), self.show())
        self.decide(self.uuid, self.cell)
        self.add_row(self.uuid, self.cell)

        self.change()

        self.assertEqual(('new', ('c',)), self.show())
        self.assertEqual(
            'server', self.row(self.uuid, self.cell).display_name)

    def test_row_without_a_build_request_is_changed(self):
        for cell in self.cell, self.cells.cell0():
            [self.uuid] = self.create()
            self.put(self.uuid, cell)

            self.change()

            self.assertEqual(('new', ('c',)), self.show())
            self.assertEqual(
                {self.uuid: ['c']},
                self.read(self.targets.database(cell),
                          instance_children.get_tags,
                          [self.uuid]))

    def test_server_without_a_row_is_not_found(self):
        revision = self.servers._revision
        self.write(self.database, build_requests.delete, [self.uuid])
        for _ in range(2):
            self.assertRaises(exception.InstanceNotFound,
                              revision.rename, self.uuid, 'x')
            self.assertRaises(exception.InstanceNotFound,
                              revision.set_tags, self.uuid, ['x'])
            self.decide(self.uuid, self.cell)
        self.assertEqual({}, self.read(
            self.targets.database(self.cell), instance_children.get_tags,
            [self.uuid]))

    def test_server_retried_during_a_change_keeps_the_change(self):
        cell0 = self.cells.cell0()
        self.put(self.uuid, cell0, vm_state='error', task_state=None)
        target = self.targets.database(cell0)

        class Retrying:
            """The cell, from which the server is taken right before."""

            @staticmethod
            def database(cell):
                self.servers.retry(self.context, self.uuid)
                return target

        self.servers._revision.targets = Retrying
        self.servers.update(self.context, self.uuid, name='new')

        self.assertEqual('new', self.show()[0])
        self.assertTrue(self.read(
            self.database, build_requests.get, self.uuid).buried)

    def test_server_buried_anew_during_a_change_keeps_the_change(self):
        lying = self.cells.cell0()
        self.put(self.uuid, lying, vm_state='error', task_state=None)
        database = self.targets.database(lying)
        cell0 = Cell0(
            self.database, self.cells, self.targets, self.clock, 'conductor')

        class Burying:
            """A cell0 from which it is taken, and where it is buried anew."""

            @staticmethod
            def database(cell):
                self.servers.retry(self.context, self.uuid)
                return Burying

            @staticmethod
            @contextlib.contextmanager
            def writer():
                with database.writer() as connection:
                    yield connection
                cell0.remove(database, [self.uuid])
                request = self.read(
                    self.database, build_requests.get, self.uuid)
                cell0.bury(self.context, [request.instance],
                           exception.NoValidHost(reason='None.'))

        self.servers._revision.targets = Burying
        self.servers.update(self.context, self.uuid, name='new')

        self.assertEqual('new', self.show()[0])

    def test_bad_names_and_tags_are_refused(self):
        for bad in hostile.NAMES:
            for tried in (
                    lambda: self.servers.update(self.context, self.uuid, bad),
                    lambda: self.servers.set_tags(
                        self.context, self.uuid, [bad]),
                    lambda: self.create(tags=[bad])):
                self.assertRaises(exception.InvalidField, tried)
        for bad in (['a/b'], ['a,b'], ['x' * 61], ['\U0001f600'], 'ab', None,
                    {'a'}, [str(number) for number in range(51)]):
            error = self.assertRaises(
                exception.InvalidField, self.servers.set_tags, self.context,
                self.uuid, bad)
            self.assertIn(error.field, ('tags', 'tags[0]'))
        self.assertEqual(('web', ('a', 'b')), self.show())

    def test_server_of_another_project_is_not_found(self):
        stranger = context.RequestContext(project_id='other')

        self.assertRaises(exception.InstanceNotFound, self.servers.update,
                          stranger, self.uuid, 'x')
        self.assertRaises(exception.InstanceNotFound, self.servers.set_tags,
                          stranger, self.uuid, ['x'])
        self.assertEqual(('web', ('a', 'b')), self.show())


DISK = {'source_type': 'volume', 'destination_type': 'volume',
        'volume_id': 'v'}


#: Errors, their texts, and extra specs of a flavor of 2 vCPUs and 512 MB.
REFUSALS = (
    ('InvalidNUMANodesNumber', "The property 'numa_nodes' cannot "
     "be 'two'. It must be a number greater than 0",
     {'hw:numa_nodes': 'two'}),
    ('ImageNUMATopologyAsymmetric', 'Instance CPUs and/or memory '
     'cannot be evenly distributed across instance NUMA nodes.',
     {'hw:numa_nodes': '3'}),
    ('ImageNUMATopologyIncomplete', 'CPU and memory allocation '
     'must be provided for all NUMA nodes',
     {'hw:numa_nodes': '2', 'hw:numa_cpus.0': '0'}),
    ('ImageNUMATopologyCPUOutOfRange',
     'CPU number 2 is larger than max 1',
     {'hw:numa_nodes': '1', 'hw:numa_cpus.0': '0-2',
      'hw:numa_mem.0': '512'}),
    ('ImageNUMATopologyCPUDuplicates',
     'CPU number 1 is assigned to two nodes',
     {'hw:numa_nodes': '2', 'hw:numa_cpus.0': '0-1',
      'hw:numa_cpus.1': '1', 'hw:numa_mem.0': '256',
      'hw:numa_mem.1': '256'}),
    ('ImageNUMATopologyCPUsUnassigned',
     'is not assigned to any node',
     {'hw:numa_nodes': '1', 'hw:numa_cpus.0': '0',
      'hw:numa_mem.0': '512'}),
    ('ImageNUMATopologyMemoryOutOfRange',
     '511 MB of memory assigned, but expected 512 MB',
     {'hw:numa_nodes': '1', 'hw:numa_cpus.0': '0-1',
      'hw:numa_mem.0': '511'}),
    ('InvalidCPUAllocationPolicy',
     "CPU policy requested from 'flavor extra specs' is invalid",
     {'hw:cpu_policy': 'pinned'}),
    ('InvalidCPUThreadAllocationPolicy',
     "CPU thread policy requested from 'flavor extra specs'",
     {'hw:cpu_thread_policy': 'alone'}),
    ('CPUThreadPolicyConfigurationInvalid', 'Cannot set cpu '
     'thread pinning policy in a non dedicated cpu pinning policy',
     {'hw:cpu_thread_policy': 'require'}),
    ('InvalidMixedInstanceDedicatedMask', 'Mixed instance must '
     'have at least 1 pinned vCPU',
     {'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '0-1'}),
    ('RequiredMixedInstancePolicy', "Cannot specify "
     "'hw:cpu_dedicated_mask' without the 'mixed' policy.",
     {'hw:cpu_dedicated_mask': '0'}),
    ('RequiredMixedOrRealtimeCPUMask', 'Dedicated CPU set can be '
     'specified from either', {'hw:cpu_policy': 'mixed'}),
    ('RealtimeConfigurationInvalid', 'Cannot set realtime policy '
     'in a non dedicated cpu pinning policy',
     {'hw:cpu_realtime': 'yes', 'hw:cpu_realtime_mask': '^0'}),
    ('RealtimeMaskNotFoundOrInvalid', 'Use of realtime CPUs '
     'requires', {'hw:cpu_policy': 'dedicated',
                  'hw:cpu_realtime': 'yes'}),
    ('InvalidEmulatorThreadsPolicy', 'CPU emulator threads option '
     'requested is invalid', {'hw:emulator_threads_policy': 'x'}),
    ('BadRequirementEmulatorThreadsPolicy', 'An isolated CPU '
     'emulator threads option requires a dedicated CPU policy',
     {'hw:emulator_threads_policy': 'isolate'}),
    ('MemoryPageSizeInvalid', "Invalid memory page size 'huge'",
     {'hw:mem_page_size': 'huge'}),
    ('LockMemoryForbidden', 'locked_memory value in image or '
     'flavor is forbidden', {'hw:locked_memory': 'true'}),
    ('InvalidRequest', 'It is not possible to use the '
     "'resources:VCPU' or", {'hw:cpu_policy': 'shared',
                             'resources:VCPU': '2'}),
    ('InvalidRequest', 'There is a mismatch between the number '
     'of PCPUs', {'resources:PCPU': '1'}),
    ('InvalidPCINUMAAffinity', 'Invalid PCI NUMA affinity '
     'configured: near', {'hw:pci_numa_affinity_policy': 'near'}),
    ('PciRequestAliasNotDefined', 'PCI alias tpu is not defined',
     {'pci_passthrough:alias': 'gpu:1,tpu:1'}))


class TestHardware(ServersTestCase):
    """Flavors that ask for cells, dedicated CPUs and devices."""

    def setUp(self):
        super().setUp()
        self.flavors = flavors.Flavors(
            authorization.LocalOperator(), self.database, self.clock)

    def aliases(self):
        return aliases.by_name([
            '{"name": "gpu", "vendor_id": "10de", "product_id": "1db4"}'])

    def ask(self, **specs):
        """Set the extra specs of the flavor."""
        present = self.flavors.get(context.admin(), 'small').extra_specs
        # Another program may have stored them, so their keys are not checked.
        self.write(
            self.database, flavor_rows.set_extra_specs, 1,
            {**dict.fromkeys(present), **specs}, samples.NOW)

    def spec(self, uuid):
        return self.read(self.database, build_requests.read_spec, uuid)

    def test_documents_are_stored_with_each_request(self):
        self.ask(**{'hw:numa_nodes': '2', 'hw:cpu_policy': 'dedicated',
                    'pci_passthrough:alias': 'gpu:1'})

        for uuid in self.create(max_count=2):
            spec = self.spec(uuid)
            self.assertEqual(
                ([{0}, {1}], 'dedicated', 256),
                ([each.pcpus for each in spec.guest_topology().cells],
                 spec.guest_topology().cells[0].policy,
                 spec.guest_topology().cells[1].memory_mb))
            [gpu] = spec.device_requests()
            self.assertEqual(('gpu', 1), (gpu.alias, gpu.count))
            self.assertEqual(
                {'PCPU': 2, 'MEMORY_MB': 512, 'DISK_GB': 14},
                spec.resources())

    def test_plain_request_has_no_document(self):
        [uuid] = self.create()

        spec = self.spec(uuid)
        for name in 'numa_topology', 'pci_requests':
            self.assertFalse(spec.obj_attr_is_set(name))

    def test_impossible_request_is_refused_before_a_write(self):
        before = self.written()
        for error, text, specs in REFUSALS:
            with self.subTest(error):
                self.ask(**specs)
                refusal = self.assertRaises(
                    exception.HardwareRequestInvalid, self.create)
                self.assertEqual(error, refusal.error)
                self.assertIn(text, str(refusal))
        self.ask(**{'pci_passthrough:alias': 'gpu'})
        error = self.assertRaises(exception.InvalidField, self.create)
        self.assertEqual('extra_specs.pci_passthrough:alias', error.field)
        self.assertEqual(before, self.written())

    def test_retry_completes_the_request_of_an_earlier_release(self):
        [uuid] = self.create()
        stored = self.spec(uuid)
        stored.flavor.extra_specs = {
            'hw:numa_nodes': '2', 'pci_passthrough:alias': 'gpu:1'}
        self.write(self.database, build_requests.save_spec, uuid,
                   stored.obj_to_primitive(), samples.NOW)
        self.put(uuid, self.cells.cell0(), vm_state='error')

        self.servers.retry(self.context, uuid)

        spec = self.spec(uuid)
        self.assertEqual(2, len(spec.numa_topology[
            'nova_object.data']['cells']))
        self.assertEqual('gpu', spec.device_requests()[0].alias)


class TestRetry(ServersTestCase):

    def setUp(self):
        super().setUp()
        [self.uuid] = self.create(hints={'different_host': NAMED})
        self.cell0 = self.cells.cell0()

    def bury(self):
        self.put(self.uuid, self.cell0, vm_state='error', task_state=None,
                 display_name='renamed')

    def retry(self):
        self.servers.retry(self.context, self.uuid)

    def mapped(self):
        return self.read(self.database, instance_mappings.get_many,
                         [self.uuid])[self.uuid].cell_mapping

    def assertRefused(self, text):
        error = self.assertRaises(exception.InstanceInvalidState, self.retry)
        self.assertIn(text, str(error))

    def test_request_is_made_anew_and_sent_to_a_conductor(self):
        self.bury()
        self.conductor.sent.clear()

        self.retry()

        [leased] = self.write(
            self.database, build_requests.lease, [self.uuid], 'me', 0, 1)
        instance = leased.request.instance
        self.assertEqual(
            ('renamed', 'building', 'scheduling', None, 2),
            (instance.display_name, instance.vm_state, instance.task_state,
             instance.host, instance.flavor.vcpus))
        self.assertTrue(leased.request.buried)
        self.assertEqual(NAMED, leased.spec.hint('different_host'))
        self.assertEqual(1, leased.min_count)
        self.assertIsNone(self.mapped())
        [sent] = self.conductor.sent
        self.assertEqual({'instance_uuids': [self.uuid]}, sent.arguments)

    def test_unburied_server_is_refused_with_the_state(self):
        self.assertRefused('BUILD')
        self.bury()
        self.retry()
        self.assertRefused('BUILD')

        [self.uuid] = self.create()
        self.put(self.uuid, self.cell, vm_state='active', task_state=None)
        self.assertRefused('ACTIVE in cell1')
        self.assertEqual('cell1', self.mapped().name)

    def test_server_without_a_request_spec_is_refused(self):
        self.bury()
        self.write(self.database, lambda connection: connection.execute(
            sa.delete(models.request_specs)))

        self.assertRefused('without its request specification')
        self.assertEqual('cell0', self.mapped().name)

    def test_deleted_server_is_not_found(self):
        self.bury()
        self.servers.delete(self.context, self.uuid)

        self.assertRaises(exception.InstanceNotFound, self.retry)
        self.assertEqual([0], self.rows(models.build_requests))

    def test_deletion_during_a_retry_wins(self):
        self.bury()
        cell_context = self.targets.database(self.cell0)

        class Deleting:

            @staticmethod
            def database(cell):
                self.servers.delete(self.context, self.uuid)
                return cell_context

        self.servers._retry.targets = Deleting
        self.assertRaises(exception.InstanceNotFound, self.retry)
        self.assertEqual([0], self.rows(models.build_requests))

    def test_change_during_a_retry_is_kept(self):
        self.bury()
        waiting = ['newest']

        def rename(conn, cursor, text, *others):
            if waiting and text.startswith('BEGIN'):
                self.servers.update(
                    self.context, self.uuid, name=waiting.pop())

        sa.event.listen(
            self.database.engine, 'before_cursor_execute', rename)
        self.retry()

        self.assertEqual(
            'newest', self.servers.get(self.context, self.uuid).name)
        self.assertEqual([1], self.rows(models.build_requests))

    def test_server_without_a_row_in_cell0_is_not_found(self):
        self.decide(self.uuid, self.cell0)
        self.write(self.database, build_requests.delete, [self.uuid])

        error = self.assertRaises(
            exception.InstanceNotFound, self.servers._retry.run, self.uuid)

        self.assertEqual(self.uuid, error.kwargs['uuid'])
        self.assertEqual('cell0', self.mapped().name)
        self.assertEqual([0], self.rows(models.build_requests))

    def test_single_retry_of_concurrent_retries_succeeds(self):
        self.bury()

        outcomes = racing.race(*[self.retry] * 6)

        self.assertEqual(1, outcomes.count(None))
        self.assertEqual(
            {exception.InstanceInvalidState},
            {type(each) for each in outcomes if each is not None})
        self.assertEqual([1], self.rows(models.build_requests))


class TestDeletion(ServersTestCase):

    def setUp(self):
        super().setUp()
        [self.uuid] = self.create(tags=['a'])

    def delete(self):
        self.servers.delete(self.context, self.uuid)

    def deleted(self, cell):
        """Return whether there is a row, and only a deleted one."""
        rows = self.read(self.targets.database(cell), lambda connection:
                         connection.execute(sa.select(
                             cell_models.instances.c.deleted)).scalars().all())
        return bool(rows) and all(rows)

    def test_late_row_of_a_deleted_server_is_not_created(self):
        request = self.read(self.database, build_requests.get, self.uuid)
        self.decide(self.uuid, self.cell)

        self.delete()

        self.assertTrue(self.deleted(self.cell))
        self.assertEqual([], self.write(
            self.targets.database(self.cell), instances.create,
            [request.instance], samples.NOW))
        self.assertIsNone(self.row(self.uuid, self.cell))

    def test_server_unbound_from_its_host_meanwhile_is_deleted(self):
        self.put(self.uuid, self.cell, task_state='spawning', host='h1')

        def leave(conn, cursor, statement, *others):
            if statement.startswith('SELECT instances'):
                conn.connection.cursor().execute(
                    'UPDATE instances SET host = NULL, task_state = NULL '
                    'WHERE host = ?', ('h1',))

        # It goes right after it was seen to be there.
        engine = self.targets.database(self.cell).engine
        sa.event.listen(engine, 'after_cursor_execute', leave)
        try:
            self.servers._deletion.run(self.context, self.uuid)
        finally:
            sa.event.remove(engine, 'after_cursor_execute', leave)

        self.assertTrue(self.deleted(self.cell))
        self.assertEqual({}, self.compute.clients)

    def test_retried_server_is_deleted_from_cell0(self):
        cell0 = self.cells.cell0()
        self.put(self.uuid, cell0, vm_state='error', task_state=None)
        self.servers.retry(self.context, self.uuid)
        self.assertIsNotNone(self.row(self.uuid, cell0))

        self.delete()

        self.assertIsNone(self.row(self.uuid, cell0))
        self.assertEqual([], self.servers.list(self.context).servers)
        self.assertRaises(exception.InstanceNotFound, self.delete)

    def test_steps_are_reported(self):
        told = []
        self.servers._reached = told.append
        self.servers._deletion._reached = told.append

        [self.uuid] = self.create()
        self.delete()

        self.assertEqual(['Accept', 'Tell', 'Delete'], told)


OTHER = context.member('other', 'other')


class TestServersInGroups(ServersTestCase):

    def setUp(self):
        super().setUp()
        self.groups = server_groups.ServerGroups(
            authorization.LocalOperator(), self.database, self.clock, 10)
        self.group = self.groups.create(
            self.context, 'group', 'anti-affinity',
            {'max_server_per_host': 2})

    def join(self, group=None, **wishes):
        return self.create(
            hints={'group': [group or self.group.uuid]}, **wishes)

    def members(self):
        return self.groups.get(self.context, self.group.uuid).members

    def test_accepted_servers_are_members(self):
        one = self.join()
        several = self.join(min_count=2, max_count=3)
        self.create()

        self.assertEqual([*one, *sorted(several)], self.members())

    def test_spec_has_the_constant_fields_of_the_group(self):
        self.join()
        uuids = self.join(min_count=2)

        for leased in self.write(
                self.database, build_requests.lease, uuids, 'me', 0, 1):
            group = leased.spec.instance_group
            self.assertEqual(
                (self.group.uuid, 'anti-affinity',
                 {'max_server_per_host': 2}, []),
                (group.uuid, group.policy, group.rules, group.members))
            self.assertEqual(
                [self.group.uuid], leased.spec.hint('group'))

    def test_spec_of_a_server_without_a_group_has_no_group(self):
        [leased] = self.write(
            self.database, build_requests.lease, self.create(), 'me', 0, 1)

        self.assertIsNone(leased.spec.instance_group)

    def test_foreign_and_unknown_groups_are_refused_alike(self):
        foreign = self.groups.create(OTHER, 'foreign', 'affinity')
        for user in (self.context, context.RequestContext(
                user_id='user', project_id='project', is_admin=True)):
            for uuid in foreign.uuid, 'unknown':
                error = self.assertRaises(
                    exception.InstanceGroupNotFound, self.servers.create,
                    user, 'web', 'small', hints={'group': [uuid]})
                self.assertEqual(
                    f'There is no server group {uuid}.', str(error))
        self.assertEqual([0, 0, 0], self.written())
        self.assertEqual([], self.conductor.sent)

    def test_members_are_bounded(self):
        self.servers._bounds = validation.ServerBounds(10, 5, frozenset, 3)
        first = self.join(min_count=2)

        error = self.assertRaises(
            exception.InvalidField, self.join, min_count=2)

        self.assertEqual('hints.group', error.field)
        self.assertIn('2 of at most 3', str(error))
        self.assertEqual(sorted(first), self.members())
        self.assertEqual([2, 2, 2], self.written())
        self.join()
        self.assertRaises(exception.InvalidField, self.join)

    def test_deleted_servers_leave_their_group(self):
        unbuilt, built, kept = sorted(self.join(min_count=3))
        self.put(built, self.cell)

        for uuid in unbuilt, built:
            self.servers.delete(self.context, uuid)

        self.assertEqual([kept], self.members())

    def test_refused_servers_do_not_join(self):
        self.servers._new_uuid = lambda: 'same'
        self.join()
        self.servers._new_uuid = iter(['batch', 'new', 'same']).__next__

        self.assertRaises(
            exception.ConstraintViolated, self.join, min_count=2)

        self.assertEqual(['same'], self.members())
        self.assertEqual([1], self.rows(models.build_requests))

    def test_server_of_a_deleted_group_is_deleted(self):
        [uuid] = self.join()

        self.groups.delete(self.context, self.group.uuid)
        self.servers.delete(self.context, uuid)

        self.assertEqual([0], self.rows(models.instance_group_member))

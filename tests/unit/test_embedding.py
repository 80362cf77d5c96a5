# SPDX-License-Identifier: Apache-2.0
"""The embedded conductor: its options, its parts, and what it closes."""

import json
import threading
import uuid

from oslo_config import cfg

from cellsched.claims import memory
from cellsched import context
from cellsched.db import api
from cellsched.db.api import build_requests
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_groups
from cellsched.db import cell
from cellsched import embedding
from cellsched import exception
from cellsched import objects
from tests.unit import base


class EmbeddedTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_directory()
        self.world = uuid.uuid4().hex

    def url(self, name):
        return f'sqlite:///{self.directory}/{name}.sqlite'

    def conf(self, **groups):
        """Return the configuration of a conductor of this test."""
        return embedding.configuration(
            self.url('api'), f'local://{self.world}/api', self.url('claims'),
            'embedder', **groups)

    def make(self, **groups):
        """Return a conductor with its databases, and nothing around it."""
        conf = self.conf(**groups)
        embedding.create_schemas(
            conf, [self.url('cell0'), self.url('cell1')])
        conductor = embedding.EmbeddedConductor(conf)
        self.addCleanup(conductor.close)
        return conductor


def spec():
    """Return a request for a server, as an embedder writes it."""
    return objects.RequestSpec(flavor=objects.Flavor(
        id=1, flavorid='1', name='tiny', vcpus=2, memory_mb=512, root_gb=1,
        extra_specs={}))


class TestOptions(EmbeddedTestCase):

    def test_registration_keeps_the_options_of_the_service(self):
        conf = cfg.ConfigOpts()
        conf.register_opts([
            cfg.StrOpt('host', default='theirs'), cfg.StrOpt('pit')])
        conf.register_opts(
            [cfg.StrOpt('connection', default='sqlite://')],
            group='api_database')
        for _ in range(2):
            embedding.register_opts(conf)

        conf([], default_config_files=[], default_config_dirs=[])
        self.assertEqual('theirs', conf.host)
        self.assertEqual('sqlite://', conf.api_database.connection)
        self.assertEqual(8, conf.conductor.build_lease)
        self.assertNotIn('filter_scheduler', conf)
        self.assertNotIn('compute_driver', conf)

    def test_configuration_has_the_arguments(self):
        conf = self.conf(conductor={'build_lease': 7},
                         DEFAULT={'service_down_time': 3})

        self.assertEqual(
            (f'local://{self.world}/api', 'embedder', 3),
            (conf.transport_url, conf.host, conf.service_down_time))
        self.assertEqual(self.url('claims'), conf.claims.connection)
        self.assertEqual(7.0, conf.conductor.build_lease)

    def test_unknown_option_and_bad_value_are_refused(self):
        for wrong in {'build_leese': 7}, {'build_lease': 'long'}, {
                'build_lease': object()}:
            error = self.assertRaises(
                exception.ConfigurationInvalid, self.conf, conductor=wrong)
            self.assertIn(f'[conductor] {[*wrong][0]}', str(error))

    def test_value_of_another_type_is_refused_with_the_value(self):
        for field, value, groups in (
                ('[conductor] build_lease', "'long'",
                 {'conductor': {'build_lease': 'long'}}),
                ('[quota] recheck_quota', "'maybe'",
                 {'quota': {'recheck_quota': 'maybe'}}),
                ('[quota] driver', '5', {'quota': {'driver': 5}}),
                ('[quota]', '5', {'quota': 5}),
                ('[quota] instances', '1.5', {'quota': {'instances': 1.5}}),
                ('[quota] instances', 'True', {'quota': {'instances': True}}),
                ('[claims] connection', '', {
                    'claims': {'connection': b'mysql://u:secret@h/d'}})):
            error = self.assertRaises(
                exception.ConfigurationInvalid, self.conf, **groups)
            self.assertEqual(field, error.field)
            self.assertIn(f'{value} is not valid' if value else 'text',
                          str(error))
            self.assertNotIn('secret', str(error))

    def test_invalid_value_in_a_file_is_named_with_its_option(self):
        path = self.directory / 'service.conf'
        for group, name, value in (
                ('DEFAULT', 'service_down_time', 'soon'),
                ('conductor', 'build_lease', 'long'),
                ('quota', 'recheck_quota', 'perhaps'),
                ('cells', 'timeout', 'never')):
            path.write_text(f'[{group}]\n{name} = {value}\n')
            conf = cfg.ConfigOpts()
            embedding.register_opts(conf)
            conf([], default_config_files=[str(path)], default_config_dirs=[])

            for call in embedding.create_schemas, embedding.EmbeddedConductor:
                error = self.assertRaises(
                    exception.ConfigurationInvalid, call, conf)
                self.assertEqual(f'[{group}] {name}', error.field)
                self.assertIn(value, str(error))

    def test_urls_are_required(self):
        for field, urls in (
                ('[api_database] connection', (None, 'local://a/b')),
                ('[DEFAULT] transport_url', (self.url('api'), None))):
            error = self.assertRaises(
                exception.ConfigurationInvalid, embedding.configuration, *urls)
            self.assertEqual(field, error.field)

    def test_configuration_of_another_type_is_refused(self):
        for call in embedding.create_schemas, embedding.EmbeddedConductor:
            for conf in None, {}:
                error = self.assertRaises(
                    exception.ConfigurationInvalid, call, conf)
                self.assertEqual('conf', error.field)

    def test_configuration_without_the_options_is_refused(self):
        conf = cfg.ConfigOpts()
        conf([], default_config_files=[], default_config_dirs=[])

        error = self.assertRaises(
            exception.ConfigurationInvalid, embedding.EmbeddedConductor, conf)

        self.assertIn('is not registered', str(error))

    def test_configurations_are_independent(self):
        first, second = self.conf(quota={'cores': 1}), self.conf()

        self.assertEqual(1, first.quota.cores)
        self.assertEqual(20, second.quota.cores)


class TestCreateSchemas(EmbeddedTestCase):

    def test_schemas_are_created_and_stay(self):
        conf = self.conf()
        for _ in range(2):
            embedding.create_schemas(conf, [self.url('cell0')])

        parts = embedding.Components(conf)
        self.addCleanup(parts.close)
        api.SCHEMA.check(parts.database)
        parts.claims.check()
        cell.SCHEMA.check(parts.databases.get(self.url('cell0'), 'cell'))

    def test_text_in_place_of_a_list_of_urls_is_refused(self):
        error = self.assertRaises(
            exception.InvalidField, embedding.create_schemas, self.conf(),
            self.url('cell0'))

        self.assertEqual('cell_databases', error.field)

    def test_conductor_without_schema_is_refused(self):
        self.assertRaises(
            exception.SchemaOutOfDate, embedding.EmbeddedConductor,
            self.conf())


class TestEmbeddedConductor(EmbeddedTestCase):

    def test_periodic_functions_are_as_often_as_configured(self):
        made = self.make(conductor={
            'build_lease': 6, 'recovery_interval': 3,
            'cast_check_interval': 4, 'claims_check_interval': 5})

        self.assertEqual([2, 3, 3, 4, 5], [
            spacing_s for _, spacing_s in made.periodic])
        for function, _ in made.periodic:
            function()

    def test_automatic_compute_version_adds_a_periodic_function(self):
        made = self.make(upgrade_levels={'compute': 'auto'})

        self.assertEqual(6, len(made.periodic))

    def test_closed_conductor_has_no_threads(self):
        before = threading.enumerate()
        with self.make() as made:
            made.mappings.create_cell(
                'cell1', f'local://{self.world}/cell1', self.url('cell1'))
            for function, _ in made.periodic:
                function()

        for thread in threading.enumerate():
            if thread not in before:
                thread.join(60)
        self.assertEqual([], [
            each for each in threading.enumerate() if each not in before])

    def test_given_parts_stay_open(self):
        self.make()
        claims = memory.MemoryClaims()
        parts = embedding.Components(self.conf(), claims=claims)
        self.addCleanup(parts.close)

        made = embedding.EmbeddedConductor(parts.conf, parts)
        made.close()

        self.assertIs(claims, made.parts.claims)
        self.assertEqual([], made.mappings.cells())

    def test_configuration_without_a_database_is_refused(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, embedding.EmbeddedConductor,
            embedding.configuration('', f'local://{self.world}/api'))

        self.assertEqual('[api_database] connection', error.field)


USER = context.RequestContext(project_id='orchestra', user_id='conductor')


class TestAccept(EmbeddedTestCase):

    def accept(self, names, min_count=1, **groups):
        self.conductor = self.make(**groups)
        return self.conductor.accept(
            USER, names, spec(), min_count)

    def test_accepted_server_waits_for_its_cell(self):
        one = str(uuid.uuid4())

        self.assertEqual([one], self.accept({one: 'violin'}))

        found = self.conductor.get(USER, one)
        self.assertEqual(
            ('violin', 'BUILD', None), (found.name, found.status, found.cell))
        mapping = self.conductor.mappings.instances([one])[one]
        self.assertIsNone(mapping.cell_mapping)
        self.assertEqual('orchestra', mapping.project_id)

    def test_request_is_completed_from_its_flavor(self):
        self.conductor = self.make(pci={'alias': [json.dumps({
            'name': 'gpu', 'vendor_id': '10de', 'product_id': '1db4'})]})
        one, asked = str(uuid.uuid4()), spec()
        asked.flavor.extra_specs = {
            'hw:numa_nodes': '2', 'pci_passthrough:alias': 'gpu:1'}

        accepted = [self.conductor.accept(USER, {one: 'cello'}, asked)
                    for _ in range(2)]

        self.assertEqual([[one], []], accepted)
        self.assertFalse(asked.obj_attr_is_set('numa_topology'))
        with self.conductor.parts.database.reader() as connection:
            stored = build_requests.read_spec(connection, one)
        self.assertEqual(2, len(stored.guest_topology().cells))
        self.assertEqual('gpu', stored.device_requests()[0].alias)
        asked.flavor.extra_specs = {'pci_passthrough:alias': 'tpu:1'}
        error = self.assertRaises(
            exception.HardwareRequestInvalid, self.conductor.accept, USER,
            {str(uuid.uuid4()): 'oboe'}, asked)
        self.assertEqual('PciRequestAliasNotDefined', error.error)

    def test_accepted_batch_is_stored_as_requested(self):
        uuids = sorted(str(uuid.uuid4()) for _ in range(3))

        self.accept(dict.fromkeys(uuids, 'it'), min_count=2)

        with self.conductor.parts.database.reader() as connection:
            found = build_requests.read(connection, uuids)
            spec = build_requests.get_spec(connection, uuids[1])
        self.assertEqual([2] * 3, [each.min_count for each in found])
        self.assertEqual([0, 1, 2], [
            each.request.instance.launch_index for each in found])
        self.assertEqual(
            (3, uuids[1], 'orchestra'), tuple(
                spec['nova_object.data'][name] for name in (
                    'num_instances', 'instance_uuid', 'project_id')))

    def test_accepted_server_is_not_accepted_again(self):
        one, two = str(uuid.uuid4()), str(uuid.uuid4())
        self.accept({one: 'it'})

        for wanted in ([two], []):
            self.assertEqual(wanted, self.conductor.accept(
                USER, {one: 'it', two: 'other'}, spec()))
        self.assertEqual('it', self.conductor.get(USER, one).name)

    def test_uuid_in_another_form_is_the_same_server(self):
        one = str(uuid.uuid4())
        self.assertEqual([one], self.accept({one.upper(): 'it'}))

        for form in (one.upper(), one.replace('-', ''), f'{{{one}}}',
                     f'urn:uuid:{one}'):
            self.assertEqual(
                [], self.conductor.accept(USER, {form: 'it'}, spec()))
            self.assertEqual(one, self.conductor.get(USER, form).uuid)
            self.assertEqual(
                [one], [*self.conductor.mappings.instances([form])])

    def test_invalid_arguments_are_refused_with_their_names(self):
        one, small = str(uuid.uuid4()), spec()
        small.flavor.memory_mb = -5
        many, hinted, zoned, imaged = spec(), spec(), spec(), spec()
        many.flavor.extra_specs = {'resources:VCPU': 'many'}
        grouped, empty = spec(), spec()
        grouped.flavor.extra_specs = {'resources1:VGPU': '-1'}
        empty.flavor.extra_specs = {
            f'resources:{name}': '0'
            for name in ('VCPU', 'MEMORY_MB', 'DISK_GB')}
        hinted.scheduler_hints = {'_nova_check_type': ['rebuild']}
        zoned.availability_zone = 'x' * 256
        imaged.image = objects.ImageMeta(id='x' * 256)
        conductor = self.conductor = self.make()
        for field, args in (
                ('context', (None, {one: 'it'}, spec())),
                ('context.project_id',
                 (context.RequestContext(user_id='u'), {one: 'it'}, spec())),
                ('context.user_id', (context.RequestContext(
                    project_id='p', user_id='x' * 256), {one: 'it'}, spec())),
                ('names', (USER, {}, spec())),
                ('names', (USER, [one], spec())),
                ('names', (USER, {'nope': 'it'}, spec())),
                ('names', (USER, {one: ''}, spec())),
                ('names', (USER, {one: 'a\nb'}, spec())),
                ('names', (USER, {one: 'x' * 256}, spec())),
                ('names', (USER, {one: None}, spec())),
                ('names', (USER, {one: ' '}, spec())),
                ('names', (USER, {one: 'it', one.upper(): 'it'}, spec())),
                ('names', (USER, {uuid.UUID(one): 'it'}, spec())),
                ('spec', (USER, {one: 'it'}, None)),
                ('spec', (USER, {one: 'it'}, {'flavor': 1})),
                ('spec.flavor', (USER, {one: 'it'}, objects.RequestSpec())),
                ('spec.flavor.memory_mb', (USER, {one: 'it'}, small)),
                ('spec.flavor.extra_specs.resources:VCPU',
                 (USER, {one: 'it'}, many)),
                ('spec.flavor.extra_specs.resources1:VGPU',
                 (USER, {one: 'it'}, grouped)),
                ('spec.flavor', (USER, {one: 'it'}, empty)),
                ('spec.scheduler_hints', (USER, {one: 'it'}, hinted)),
                ('spec.availability_zone', (USER, {one: 'it'}, zoned)),
                ('spec.image.id', (USER, {one: 'it'}, imaged)),
                ('min_count', (USER, {one: 'it'}, spec(), 0)),
                ('min_count', (USER, {one: 'it'}, spec(), 2)),
                ('min_count', (USER, {one: 'it'}, spec(), True))):
            error = self.assertRaises(
                exception.InvalidField, conductor.accept, *args)
            self.assertEqual(field, error.field)
        self.assertEqual({}, conductor.mappings.instances([one]))

    def test_invalid_hosts_and_groups_are_refused_with_their_names(self):
        one = str(uuid.uuid4())
        forced, ignoring, bound, nodes = spec(), spec(), spec(), spec()
        forced.force_hosts, nodes.force_nodes = [''], ['x' * 256]
        ignoring.ignore_hosts = ['host1', 'x' * 256]
        bound.requested_destination = objects.Destination(host='')
        unnamed, other_group = spec(), spec()
        unnamed.scheduler_hints = {'group': [one]}
        other_group.scheduler_hints = {'group': [one]}
        other_group.instance_group = objects.InstanceGroup(
            uuid=str(uuid.uuid4()))
        conductor = self.conductor = self.make()
        for field, request in (
                ('spec.force_hosts[0]', forced),
                ('spec.force_nodes[0]', nodes),
                ('spec.ignore_hosts[1]', ignoring),
                ('spec.requested_destination.host', bound),
                ('spec.scheduler_hints.group', unnamed),
                ('spec.scheduler_hints.group', other_group)):
            error = self.assertRaises(
                exception.InvalidField, conductor.accept, USER, {one: 'it'},
                request)
            self.assertEqual(field, error.field)
        self.assertEqual({}, conductor.mappings.instances([one]))

    def test_request_beyond_a_bound_of_schedulers_is_refused(self):
        uuids = [str(uuid.uuid4()) for _ in range(3)]
        hinted, special, imaged, avoided = spec(), spec(), spec(), spec()
        hinted.scheduler_hints = {'a': ['1'], 'b': ['1'], 'c': ['1']}
        special.flavor.extra_specs = {'a': '1', 'b': '1', 'c': '1'}
        imaged.image = objects.ImageMeta(
            properties=objects.ImageMetaProps(a='1', b='1', c='1'))
        avoided.ignore_hosts = ['a', 'b', 'c']
        conductor = self.conductor = self.make(scheduler={
            'max_instances_per_request': 2, 'max_names_per_request': 2,
            'max_values_per_list': 2})
        for field, option, count, request in (
                ('names', 'max_instances_per_request', 3, spec()),
                ('spec.scheduler_hints', 'max_names_per_request', 1, hinted),
                ('spec.flavor.extra_specs', 'max_names_per_request', 1,
                 special),
                ('spec.image.properties', 'max_names_per_request', 1, imaged),
                ('spec.ignore_hosts', 'max_values_per_list', 1, avoided)):
            error = self.assertRaises(
                exception.InvalidField, conductor.accept, USER,
                dict.fromkeys(uuids[:count], 'it'), request)
            self.assertEqual(field, error.field)
            self.assertIn(f'at most 2, which is [scheduler] {option}',
                          str(error))
        self.assertEqual({}, conductor.mappings.instances(uuids))
        self.accept(dict.fromkeys(uuids[:2], 'it'))

    def test_uuid_of_another_server_is_refused(self):
        one, bigger = str(uuid.uuid4()), spec()
        self.accept({one: 'it'})
        bigger.flavor.vcpus = 4
        imaged, special, hinted = spec(), spec(), spec()
        imaged.image = objects.ImageMeta(id='i')
        special.flavor.extra_specs = {'trait:HW_CPU_X86_AVX': 'required'}
        hinted.scheduler_hints = {'same_host': [str(uuid.uuid4())]}
        other = context.member('other', 'orchestra2')
        two = str(uuid.uuid4())

        for field, who, name, request in (
                ('flavor', USER, 'it', bigger), ('image', USER, 'it', imaged),
                ('flavor', USER, 'it', special),
                ('scheduler_hints', USER, 'it', hinted),
                ('name', USER, 'other', spec()),
                ('project', other, 'it', spec())):
            error = self.assertRaises(
                exception.ServerExists, self.conductor.accept, who,
                {one: name, two: 'new'}, request)
            self.assertIn(f'another {field}', str(error))
        self.assertEqual([], self.conductor.accept(USER, {one: 'it'}, spec()))
        self.assertEqual({}, self.conductor.mappings.instances([two]))

    def test_accepted_servers_join_their_group(self):
        one, two = str(uuid.uuid4()), str(uuid.uuid4())
        group = objects.InstanceGroup(
            uuid=str(uuid.uuid4()), name='apart', policy='anti-affinity',
            project_id=USER.project_id, user_id=USER.user_id)
        request = spec()
        request.instance_group = objects.InstanceGroup(uuid=group.uuid)
        request.scheduler_hints = {'group': [group.uuid]}
        conductor = self.conductor = self.make()

        self.assertRaises(exception.InstanceGroupNotFound, conductor.accept,
                          USER, {one: 'it'}, request)
        database = conductor.parts.database
        with database.writer() as connection:
            instance_groups.create(connection, group, database.now())
        self.assertRaises(
            exception.InstanceGroupNotFound, conductor.accept,
            context.member('other', 'orchestra2'), {one: 'it'}, request)
        conductor.accept(USER, {one: 'it', two: 'it too'}, request)
        self.assertEqual([], conductor.accept(USER, {one: 'it'}, request))

        with database.reader() as connection:
            self.assertEqual(
                {one, two},
                {*instance_groups.get(connection, group.uuid).members})
            stored = build_requests.read_spec(connection, one)
        self.assertEqual('anti-affinity', stored.instance_group.policy)
        self.assertRaises(exception.ServerExists, conductor.accept,
                          USER, {one: 'it'}, spec())

    def test_order_of_names_makes_no_other_request(self):
        # Each process has another order of the names of a set.
        one, first, second = str(uuid.uuid4()), spec(), spec()
        for each, names in ((first, 'ab'), (second, 'ba')):
            each.ignore_hosts = [*names]
            each.flavor.extra_specs = {name: name for name in names}
        conductor = self.make()

        conductor.accept(USER, {one: 'it'}, first)

        self.assertEqual([], conductor.accept(USER, {one: 'it'}, second))

    def test_run_of_another_server_is_refused(self):
        one, other = str(uuid.uuid4()), str(uuid.uuid4())
        self.accept({one: 'it'})

        for who, uuids in (
                (USER, [other]), (USER, [one, other]),
                (context.member('other', 'orchestra2'), [one])):
            error = self.assertRaises(
                exception.InstanceNotFound, self.conductor.run, who, uuids)
            self.assertEqual(uuids[-1], error.kwargs['uuid'])
        self.assertEqual('BUILD', self.conductor.get(USER, one).status)

    def test_invalid_arguments_of_other_methods_are_refused(self):
        one = str(uuid.uuid4())
        made = self.make()
        mappings, url = made.mappings, self.url('cell1')
        for field, call, *args in (
                ('context', made.run, None, [one]),
                ('uuids', made.run, USER, one),
                ('uuids', made.run, USER, None),
                ('uuids', made.run, USER, [one, 'nope']),
                ('uuids', made.run, USER, [uuid.UUID(one)]),
                ('context', made.get, {}, one),
                ('uuid', made.get, USER, 'nope'),
                ('uuid', made.get, USER, None),
                ('uuids', mappings.instances, one),
                ('uuids', mappings.instances, ['nope']),
                ('names', mappings.hosts, 'host1'),
                ('names[1]', mappings.hosts, ['host1', None]),
                ('name', mappings.create_cell, '', 'none:///', url),
                ('name', mappings.create_cell, 'x' * 256, 'none:///', url),
                ('transport_url', mappings.create_cell, 'c', None, url),
                ('database_connection', mappings.create_cell, 'c', 'none:///',
                 b'mysql://u:secret@h/d'),
                ('uuid', mappings.create_cell, 'c', 'none:///', url, 'nope'),
                ('uuid', mappings.create_cell, 'c', 'none:///', url,
                 objects.CELL0_UUID),
                ('check', mappings.create_cell, 'c', 'none:///', url, None,
                 'no'),
                ('database_connection', mappings.create_cell0, '')):
            error = self.assertRaises(exception.InvalidField, call, *args)
            self.assertEqual(field, error.field)
            self.assertNotIn('secret', str(error))
        self.assertEqual([], mappings.cells())
        made.run(USER, [])

    def test_closed_conductor_refuses_calls(self):
        conductor = self.make()
        conductor.close()
        conductor.close()

        for call in (lambda: conductor.accept(USER, {'x': 'it'}, spec()),
                     lambda: conductor.run(USER, []),
                     lambda: conductor.get(USER, 'x')):
            self.assertRaises(exception.ConductorClosed, call)

    def test_server_beyond_the_quota_is_refused(self):
        one = str(uuid.uuid4())

        self.assertRaises(exception.OverQuota, self.accept, {one: 'it'},
                          quota={'cores': 1})

        self.assertEqual({}, self.conductor.mappings.instances([one]))

    def test_servers_beyond_the_rate_are_refused(self):
        one, two = str(uuid.uuid4()), str(uuid.uuid4())
        self.accept({one: 'it'}, quota={'servers_per_minute': 1})

        self.assertRaises(
            exception.RateLimitExceeded, self.conductor.accept, USER,
            {two: 'it'}, spec())

        self.assertEqual(
            [one], [*self.conductor.mappings.instances([one, two])])


class TestMappings(EmbeddedTestCase):

    def setUp(self):
        super().setUp()
        self.conductor = self.make()
        self.mappings = self.conductor.mappings

    def create_cell(self):
        return self.mappings.create_cell(
            'cell1', f'local://{self.world}/cell1', self.url('cell1'))

    def test_cells_are_created_and_listed(self):
        cell0 = self.mappings.create_cell0(self.url('cell0'))
        cell1 = self.create_cell()

        self.assertEqual([cell0.uuid, cell1.uuid], [
            cell.uuid for cell in self.mappings.cells()])
        self.assertTrue(cell0.is_cell0())

    def test_cell_of_another_cells_database_is_refused(self):
        self.create_cell()

        self.assertRaises(exception.CellMappingExists, self.create_cell)

    def test_new_cell_is_known_at_once(self):
        self.assertEqual([], self.conductor.parts.cells.real())

        self.create_cell()

        self.assertEqual(['cell1'], [
            cell.name for cell in self.conductor.parts.cells.real()])

    def test_hosts_have_their_cells(self):
        self.create_cell()
        [cell] = self.mappings.cells()
        database = self.conductor.parts.database
        with database.writer() as connection:
            host_mappings.create_missing(
                connection, ['a1'], cell.id, database.now())

        [found] = self.mappings.hosts(['a1', 'a2'])

        self.assertEqual(
            ('a1', cell.uuid), (found.host, found.cell_mapping.uuid))

    def test_unknown_server_has_no_mapping(self):
        self.assertEqual({}, self.mappings.instances([str(uuid.uuid4())]))

    def test_cell_has_its_uuid_in_lower_case(self):
        one = str(uuid.uuid4())

        self.mappings.create_cell(
            'cell1', f'local://{self.world}/cell1', self.url('cell1'),
            one.upper())

        self.assertEqual([one], [
            cell.uuid for cell in self.mappings.cells()])

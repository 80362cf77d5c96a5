# SPDX-License-Identifier: Apache-2.0
import hypothesis
from hypothesis import strategies as st
from oslo_serialization import jsonutils

from cellsched import exception
from cellsched import objects
from cellsched.objects import legacy
from cellsched.rpc import serializer
from cellsched.testing import builders
from tests.unit import base
from tests.unit.objects import wire

FLAVOR = {'id': 1, 'name': 'm1', 'flavorid': '1', 'vcpus': 2,
          'memory_mb': 512, 'root_gb': 10, 'ephemeral_gb': 1, 'swap': 1024,
          'extra_specs': {'hw:cpu_policy': 'shared', 'count': 2}}

INSTANCE = {'uuid': wire.UUID, 'project_id': 'project', 'user_id': 'user',
            'availability_zone': 'az1', 'vcpus': 4, 'memory_mb': 1024,
            'root_gb': 20, 'ephemeral_gb': 2, 'numa_topology': None,
            'pci_requests': {'requests': []}, 'created_at': 'long ago'}

IMAGE = {'id': wire.UUID, 'name': 'cirros', 'disk_format': 'qcow2',
         'size': '25', 'min_ram': 'much', 'created_at': 5,
         'properties': {'architecture': 'x86_64', 'custom': 'x',
                        'none': None}}

GROUP = {'group_updated': True, 'group_hosts': ['h1'],
         'group_policies': ['anti-affinity'], 'group_members': [wire.UUID],
         'group_uuid': wire.UUID}

#: Whatever JSON can say.
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5)


def dicts_of(*names):
    """Return dicts of these names, and of others, with anything in them."""
    return ANYTHING | st.dictionaries(
        st.sampled_from(names) | st.text(), ANYTHING)


class ReadingTestCase(base.TestCase):

    def read(self, asked=None, **wishes):
        """Return the request of two dicts that came over the wire."""
        sent = jsonutils.loads(jsonutils.dumps([
            {'instance_type': FLAVOR, 'instance_properties': INSTANCE,
             **(asked or {})}, wishes]))
        return legacy.request_spec(
            *serializer.Serializer().deserialize_entity(None, sent))

    def assertRefused(self, field, asked=None, **wishes):
        error = self.assertRaises(
            exception.InvalidField, self.read, asked, **wishes)
        self.assertEqual(('select_destinations', field),
                         (error.where, error.field))
        self.assertTrue(error.args[0].isprintable())


class TestDemand(ReadingTestCase):

    def test_request_is_of_the_instance(self):
        spec = self.read()

        for field, value in {
                'instance_uuid': wire.UUID, 'project_id': 'project',
                'user_id': 'user', 'availability_zone': 'az1',
                'num_instances': 1, 'numa_topology': None, 'image': None,
                'pci_requests': {'requests': []}}.items():
            self.assertEqual(value, spec.get(field, 'not set'), field)
        self.assertEqual(3, self.read({'num_instances': 3}).num_instances)

    def test_flavor_is_a_dict_or_an_object(self):
        flavor = self.read().flavor
        for name, value in {**FLAVOR, 'extra_specs': {
                'hw:cpu_policy': 'shared', 'count': '2'}}.items():
            self.assertEqual(value, flavor.get(name), name)

        flavor = self.read({'instance_type': wire.FLAVOR}).flavor
        self.assertEqual(wire.without_changes(wire.FLAVOR),
                         flavor.obj_to_primitive())

    def test_flavor_is_read_from_the_first_source(self):
        kept = {f'instance_type_{name}': str(FLAVOR[name]) for name in (
            'id', 'name', 'vcpus', 'memory_mb', 'root_gb', 'swap')}
        kept |= {'instance_type_vcpus': '5', 'image_os': 'x'}
        metadata = {**INSTANCE, 'system_metadata': kept}
        there = {**metadata, 'flavor': {**FLAVOR, 'vcpus': 7}}
        for vcpus, asked, wishes in (
                (2, {'instance_properties': there}, {}),
                (3, {'instance_properties': there, 'instance_type': {}},
                 {'instance_type': {**FLAVOR, 'vcpus': 3}}),
                (7, {'instance_properties': there, 'instance_type': None}, {}),
                (5, {'instance_properties': metadata,
                     'instance_type': None}, {}),
                (4, {'instance_type': {}}, {})):
            spec = self.read(asked, **wishes)
            self.assertEqual(vcpus, spec.flavor.vcpus)
        self.assertEqual(20, self.read({'instance_type': {}}).flavor.root_gb)

    def test_instance_may_be_an_object(self):
        spec = self.read({
            'instance_type': None, 'instance_properties': wire.as_sent(
                'Instance', '2.0', uuid=wire.UUID, project_id='project',
                flavor=wire.FLAVOR, system_metadata={})})

        self.assertEqual(wire.UUID, spec.instance_uuid)
        self.assertEqual('project', spec.project_id)
        self.assertEqual('m1', spec.flavor.name)

    def test_image_is_read_as_far_as_possible(self):
        image = self.read({'image': IMAGE}).image

        self.assertEqual(
            (wire.UUID, 'cirros', 'qcow2', 25, None),
            tuple(map(image.get, ('id', 'name', 'disk_format', 'size',
                                  'min_ram'))))
        self.assertEqual({'hw_architecture': 'x86_64', 'custom': 'x'},
                         dict(image.properties.items()))
        for nothing in (None, {}):
            self.assertIsNone(self.read({'image': nothing}).image)
        image = self.read({'image': wire.IMAGE}).image
        self.assertEqual(wire.without_changes(wire.IMAGE),
                         wire.without_changes(image.obj_to_primitive()))

    def test_old_names_of_properties_are_translated(self):
        for said, meant in (
                ({'hypervisor_type': 'kvm', 'vm_mode': 'hvm'},
                 {'img_hv_type': 'kvm', 'hw_vm_mode': 'hvm'}),
                ({'architecture': 'i686', 'hw_architecture': 'x86_64'},
                 {'hw_architecture': 'x86_64'}),
                ({'vmware_adaptertype': 'ide'}, {'hw_disk_bus': 'ide'}),
                ({'vmware_adaptertype': 'lsiLogic'},
                 {'hw_disk_bus': 'scsi', 'hw_scsi_model': 'lsiLogic'}),
                ({'trait:CUSTOM_A': 'required'},
                 {'traits_required': ['CUSTOM_A'],
                  'trait:CUSTOM_A': 'required'}),
                ({'trait:CUSTOM_A': 'x'}, {'trait:CUSTOM_A': 'x'})):
            spec = self.read({'image': {'properties': said}})
            self.assertEqual(meant, dict(spec.image.properties.items()))

    def test_unreadable_field_is_named(self):
        flavor = 'request_spec.instance_type'
        instance = 'request_spec.instance_properties'
        for field, asked in (
                (flavor, {'instance_type': 'm1'}),
                *((f'{flavor}.{name}', {'instance_type': {
                    **FLAVOR, name: value}})
                  for name in ('vcpus', 'memory_mb', 'root_gb', 'swap')
                  for value in ('1', True, 1.5, [1])),
                (f'{flavor}.vcpus', {'instance_type': {},
                                     'instance_properties': {}}),
                (f'{flavor}.name', {'instance_type': {**FLAVOR, 'name': []}}),
                (f'{flavor}.extra_specs', {'instance_type': {
                    **FLAVOR, 'extra_specs': ['a']}}),
                (f'{flavor}.extra_specs.a\\r\\n', {'instance_type': {
                    **FLAVOR, 'extra_specs': {'a\r\n': []}}}),
                (f'{instance}.system_metadata.vcpus', {
                    'instance_type': {}, 'instance_properties': {
                        'system_metadata': {
                            'instance_type_vcpus': '9' * 1000}}}),
                (instance, {'instance_properties': []}),
                (instance, {'instance_properties': wire.FLAVOR}),
                (f'{instance}.uuid', {'instance_properties': {'uuid': 5}}),
                (f'{instance}.availability_zone', {
                    'instance_properties': {'availability_zone': ['az']}}),
                ('request_spec.image', {'image': 'cirros'}),
                ('request_spec.image', {'image': wire.FLAVOR}),
                ('request_spec.image.id', {'image': {'id': 5}}),
                ('request_spec.image.properties', {
                    'image': {'properties': ['x']}}),
                *(('request_spec.num_instances', {'num_instances': value})
                  for value in ('1', True, 1.0, [])),
                ('request_spec.is_bfv', {'is_bfv': 'no'})):
            with self.subTest(field=field, asked=str(asked)[:60]):
                self.assertRefused(field, asked)

    def test_only_dicts_are_read(self):
        for given in ('x', 5, [], True):
            for field, sent in (('request_spec', (given, {})),
                                ('filter_properties', ({}, given))):
                error = self.assertRaises(
                    exception.InvalidField, legacy.request_spec,
                    *sent)
                self.assertEqual(field, error.field)


class TestDestination(ReadingTestCase):

    def test_default_request_has_no_destination_or_hints(self):
        for wishes in ({}, dict.fromkeys((
                'ignore_hosts', 'retry', 'limits', 'instance_group',
                'scheduler_hints', 'requested_destination'))):
            spec = self.read(**wishes)
            for name in ('ignore_hosts', 'force_hosts', 'force_nodes', 'retry',
                         'instance_group', 'requested_destination'):
                self.assertIsNone(spec.get(name, 'not set'))
            self.assertEqual({}, spec.scheduler_hints)
            self.assertEqual({}, spec.limits.to_dict())

    def test_hosts_are_lists(self):
        spec = self.read(ignore_hosts=['h1'], force_hosts=['h2', 'h3'],
                         force_nodes=[])

        self.assertEqual((['h1'], ['h2', 'h3'], []), (
            spec.ignore_hosts, spec.force_hosts, spec.force_nodes))

    def test_tried_hosts_are_pairs(self):
        retry = self.read(retry={
            'num_attempts': 2, 'hosts': [['h1', 'n1'], ['h2', None]],
            'exc': ['Traceback'], 'exc_reason': {}}).retry

        self.assertEqual(2, retry.num_attempts)
        self.assertEqual([('h1', 'n1'), ('h2', None)], [
            (node.host, node.hypervisor_hostname) for node in retry.hosts])

    def test_limits_are_read_as_far_as_possible(self):
        for limits, meant in (
                ({'memory_mb': 512.5, 'vcpu': 4}, {'memory_mb': 512,
                                                   'vcpu': 4}),
                ({'disk_gb': 'x', 'memory_mb': float('inf')}, {}),
                (5, {}), (wire.LIMITS, {})):
            self.assertEqual(meant, self.read(limits=limits).limits.to_dict())

    def test_group_is_read_from_separate_properties(self):
        group = self.read(**GROUP).instance_group

        self.assertEqual(
            ('anti-affinity', ['h1'], [wire.UUID], wire.UUID, {}),
            (group.policy, group.hosts, group.members, group.uuid,
             group.rules))
        self.assertIsNone(
            self.read(**{**GROUP, 'group_updated': False}).instance_group)
        group = self.read(**GROUP, group_rules={
            'max_server_per_host': '2'}).instance_group
        self.assertEqual({'max_server_per_host': 2}, group.rules)

    def test_group_is_read_from_an_object(self):
        group = self.read(instance_group=wire.GROUP).instance_group

        self.assertEqual(wire.without_changes(wire.GROUP),
                         group.obj_to_primitive())

    def test_sets_are_read_as_lists(self):
        group = legacy.request_spec({'instance_type': FLAVOR}, {
            **GROUP, 'group_hosts': {'h1'},
            'group_policies': {'affinity'}}).instance_group

        self.assertEqual(('affinity', ['h1']), (group.policy, group.hosts))

    def test_hints_are_values_or_lists(self):
        self.assertEqual(
            {'group': ['a'], 'same_host': ['b', 'c'], 'none': [],
             'number': ['5'], 'flag': ['True']},
            self.read(scheduler_hints={
                'group': 'a', 'same_host': ['b', 'c'], 'none': [],
                'number': 5, 'flag': True}).scheduler_hints)

    def test_destination_is_an_object(self):
        target = self.read(
            requested_destination=wire.DESTINATION).requested_destination

        self.assertIsInstance(target, objects.Destination)
        self.assertEqual(wire.CELL, target.cell.uuid)

    def test_demands_are_passed_on_in_any_form(self):
        for said in ({'cells': []}, [1], 5, 'x', None):
            spec = self.read({'instance_properties': {
                **INSTANCE, 'numa_topology': said, 'pci_requests': said}})

            self.assertEqual(
                (said, said), (spec.numa_topology, spec.pci_requests))

    def test_fields_added_by_schedulers_are_ignored(self):
        spec = self.read(context={}, request_spec=5, config_options='x',
                         unknown=[{}], pci_requests=5)

        self.assertEqual({}, spec.scheduler_hints)

    def test_error_for_an_unreadable_field_names_the_field(self):
        lists = ('ignore_hosts', 'force_hosts', 'force_nodes')
        for field, wishes in (
                *((name, {name: value}) for name in lists
                  for value in ('h1', 5, [5], [None], {})),
                ('retry', {'retry': ['h']}),
                ('retry.num_attempts', {'retry': {'num_attempts': '1'}}),
                *(('retry.hosts', {'retry': {'hosts': value}}) for value in (
                    5, 'hn', ['hn'], [['h']], [['h', 'n', 'x']],
                    [[None, 'n']], [['h', 5]])),
                *((name, {**GROUP, name: value})
                  for name in ('group_hosts', 'group_members')
                  for value in ('x', 5, [5])),
                *(('group_policies', {**GROUP, 'group_policies': value})
                  for value in (None, [], [5], 'affinity')),
                ('group_uuid', {**GROUP, 'group_uuid': 5}),
                ('group_rules', {**GROUP, 'group_rules': 5}),
                ('group_rules.x', {**GROUP, 'group_rules': {'x': 5}}),
                ('instance_group', {'instance_group': {'policy': 'x'}}),
                ('scheduler_hints', {'scheduler_hints': ['x']}),
                *(('scheduler_hints.query', {'scheduler_hints': {
                    'query': value}}) for value in (
                        None, {}, [None], [['=']])),
                ('requested_destination', {'requested_destination': 'h1'}),
                ('requested_destination', {
                    'requested_destination': {'host': 'h1'}})):
            with self.subTest(field=field, wishes=str(wishes)[:60]):
                self.assertRefused(f'filter_properties.{field}', **wishes)

    def test_rule_out_of_bounds_is_refused(self):
        error = self.assertRaises(exception.InvalidField, self.read, **{
            **GROUP, 'group_rules': {'max_skew': '0'}})

        self.assertEqual('rules.max_skew', error.field)


class TestArbitraryInput(ReadingTestCase):

    @hypothesis.given(st.fixed_dictionaries({}, optional={
        'num_instances': ANYTHING, 'is_bfv': ANYTHING,
        'image': dicts_of('id', 'size', 'tags', 'properties'),
        'instance_type': dicts_of(*FLAVOR, 'projects', 'rxtx_factor'),
        'instance_properties': dicts_of(*INSTANCE, 'system_metadata')}),
        st.fixed_dictionaries({}, optional={
            **dict.fromkeys(('force_hosts', 'instance_group',
                             'requested_destination'), ANYTHING),
            'scheduler_hints': dicts_of('query'),
            'retry': dicts_of('hosts', 'num_attempts'),
            'limits': dicts_of(*objects.SchedulerLimits.fields),
            'group_updated': st.just(True), 'group_hosts': ANYTHING,
            'group_policies': ANYTHING, 'group_members': ANYTHING,
            'group_rules': dicts_of('spread', 'max_skew')}))
    def test_arbitrary_request_is_read_or_refused(self, asked, wishes):
        try:
            spec = self.read(asked, **wishes)
        except exception.InvalidField as exc:
            self.assertTrue(exc.args[0].isprintable())
        else:
            self.assertIsInstance(spec.flavor, objects.Flavor)
            jsonutils.dumps(spec.obj_to_primitive())


class TestDicts(base.TestCase):

    def test_requested_amounts_have_the_legacy_form(self):
        spec = builders.request(
            vcpus=2, ephemeral_gb=3, num_instances=2, availability_zone='az1',
            image={'id': wire.UUID, 'properties': {'hw_vm_mode': 'hvm'}},
            numa_topology=None, pci_requests={'requests': []})

        asked, wishes = legacy.dicts(spec)

        self.assertEqual({
            'num_instances': 2,
            'image': {'id': wire.UUID, 'name': 'image',
                      'properties': {'hw_vm_mode': 'hvm'}},
            'instance_type': spec.flavor,
            'instance_properties': {
                'uuid': spec.instance_uuid, 'project_id': 'project',
                'user_id': 'user', 'availability_zone': 'az1',
                'numa_topology': None, 'pci_requests': {'requests': []},
                'vcpus': 2, 'memory_mb': 512, 'root_gb': 1,
                'ephemeral_gb': 3}}, asked)
        self.assertEqual({}, wishes)

    def test_unset_fields_are_omitted(self):
        self.assertEqual(
            ({'num_instances': 1, 'image': {}, 'instance_properties': {},
              'instance_type': {}}, {}),
            legacy.dicts(objects.RequestSpec()))

    def test_destination_has_the_legacy_form(self):
        target = objects.Destination(host='h9')
        spec = builders.request(
            ignore_hosts=['h1'], force_hosts=[], force_nodes=['n1'],
            requested_destination=target,
            limits=objects.SchedulerLimits(vcpu=4, disk_gb=None),
            retry=objects.SchedulerRetries.obj_from_primitive(wire.RETRIES),
            hints={'one': 'a', 'two': ['a', 'b'], 'none': []})

        _, wishes = legacy.dicts(spec)

        self.assertEqual({
            'ignore_hosts': ['h1'], 'force_nodes': ['n1'],
            'requested_destination': target, 'limits': {'vcpu': 4},
            'retry': {'num_attempts': 1, 'hosts': [['h', 'n']]},
            'scheduler_hints': {'one': 'a', 'two': ['a', 'b'], 'none': []},
        }, wishes)

    def test_empty_limits_are_included(self):
        _, wishes = legacy.dicts(builders.request(
            limits=objects.SchedulerLimits()))

        self.assertEqual({'limits': {}}, wishes)

    def test_group_is_split_into_legacy_fields(self):
        _, wishes = legacy.dicts(builders.request(group={
            'policy': 'affinity', 'members': ['b', 'a', 'a']}))

        self.assertEqual({
            'group_updated': True, 'group_policies': ['affinity'],
            'group_hosts': [], 'group_members': ['a', 'b'],
            'group_uuid': '00000000-0000-0000-0000-000000000003'}, wishes)

    def test_fields_unknown_to_nova_are_added_only_if_needed(self):
        asked, wishes = legacy.dicts(builders.request(
            is_bfv=True, group={'rules': {'spread': 'cell'}}))

        self.assertIs(True, asked['is_bfv'])
        self.assertEqual({'spread': 'cell'}, wishes['group_rules'])
        self.assertEqual([None], wishes['group_policies'])


TEXTS = st.text(max_size=5)
LISTS = st.lists(TEXTS, max_size=3)
SOME = st.lists(TEXTS, min_size=1, max_size=3)
AMOUNTS = st.integers(0, 2 ** 31 - 1)

#: Most hints have one value, and those with several are lists.
HINTS = st.dictionaries(TEXTS, LISTS, max_size=3)

FLAVORS = st.fixed_dictionaries({
    **{name: AMOUNTS for name in ('vcpus', 'memory_mb', 'root_gb',
                                  'ephemeral_gb', 'swap')},
    'name': TEXTS, 'extra_specs': st.dictionaries(TEXTS, TEXTS, max_size=3)})

#: Names that images use now, and values that JSON keeps.
PROPERTIES = st.dictionaries(
    st.sampled_from(['hw_architecture', 'hw_vm_mode', 'custom', 'a b']),
    TEXTS | st.booleans() | AMOUNTS | LISTS)

IMAGES = st.none() | st.builds(
    lambda name, properties: objects.ImageMeta(
        id=name, disk_format='qcow2',
        properties=objects.ImageMetaProps(**properties)), TEXTS, PROPERTIES)

GROUPS = st.none() | st.builds(
    lambda rules, **values: objects.InstanceGroup(
        uuid=wire.UUID, rules=rules, **values),
    policy=st.sampled_from([None, 'affinity', 'anti-affinity']),
    hosts=LISTS.map(lambda names: sorted(set(names))),
    members=LISTS.map(lambda names: sorted(set(names))),
    rules=st.sampled_from([{}, {'max_server_per_host': '2'},
                           {'spread': 'az', 'max_skew': '3'}]))

RETRIES = st.none() | st.builds(
    lambda attempts, pairs: objects.SchedulerRetries(
        num_attempts=attempts, hosts=objects.ComputeNodeList(objects=[
            objects.ComputeNode(host=host, hypervisor_hostname=node)
            for host, node in pairs])),
    AMOUNTS, st.lists(st.tuples(TEXTS, st.none() | TEXTS), max_size=3))

DESTINATIONS = st.none() | st.builds(
    objects.Destination, host=TEXTS, node=st.none() | TEXTS,
    aggregates=LISTS, forbidden_aggregates=st.sets(TEXTS, max_size=3))

LIMITS = st.builds(
    objects.SchedulerLimits, vcpu=st.none() | AMOUNTS, disk_gb=AMOUNTS,
    memory_mb=AMOUNTS, numa_topology=st.none() | st.just({'ratio': 1.0}))

SPECS = st.builds(
    lambda flavor, **fields: builders.request(**flavor, **fields),
    flavor=FLAVORS, image=IMAGES, instance_group=GROUPS, retry=RETRIES,
    requested_destination=DESTINATIONS, limits=LIMITS, scheduler_hints=HINTS,
    num_instances=st.integers(1, 5), is_bfv=st.booleans(),
    availability_zone=st.none() | TEXTS, project_id=st.none() | TEXTS,
    ignore_hosts=st.none() | SOME, force_hosts=st.none() | SOME,
    force_nodes=st.none() | SOME)

#: What a request says of a group, and dicts do not.
UNTOLD = {'name', 'id', 'policies', 'project_id', 'user_id'}


def comparable(spec):
    """Return what a decision may read of a request."""
    fields = spec.obj_to_primitive()['nova_object.data']
    asked = (fields.get('requested_destination') or {}).get(
        'nova_object.data', {})
    if asked.get('forbidden_aggregates'):
        # Equal sets may have their values in another order.
        asked['forbidden_aggregates'] = sorted(asked['forbidden_aggregates'])
    group = spec.get('instance_group')
    return {
        **{name: value for name, value in fields.items()
           if name != 'instance_group'},
        'group': group and {name: group.get(name) for name in group.fields
                            if name not in UNTOLD}}


class TestRoundTrip(base.TestCase):

    @hypothesis.given(SPECS)
    @hypothesis.example(builders.request(
        requested_destination=objects.Destination(
            host='', node=None, aggregates=[], forbidden_aggregates={
                '\u21d6\xbd\U000d7e6d\xa7', '\x13', '5'})))
    def test_request_is_unchanged(self, spec):
        wire_ = serializer.Serializer()

        sent = jsonutils.dumps(wire_.serialize_entity(
            None, list(legacy.dicts(spec))))
        asked, wishes = wire_.deserialize_entity(None, jsonutils.loads(sent))
        back = legacy.request_spec(asked, wishes)

        expected, got = comparable(spec), comparable(back)
        # What the request does not say may be said to be nothing.
        self.assertEqual(expected, {name: got[name] for name in expected})

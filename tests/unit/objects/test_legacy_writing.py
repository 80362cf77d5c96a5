# SPDX-License-Identifier: Apache-2.0
import hypothesis
from hypothesis import strategies as st
from oslo_serialization import jsonutils

from cellsched import objects
from cellsched.objects import legacy_reading
from cellsched.objects import legacy_writing
from cellsched.rpc import serializer
from cellsched.testing import builders
from tests.unit import base
from tests.unit.objects import wire


class TestDicts(base.TestCase):

    def test_what_is_wanted_is_told_as_before(self):
        spec = builders.request(
            vcpus=2, ephemeral_gb=3, num_instances=2, availability_zone='az1',
            image={'id': wire.UUID, 'properties': {'hw_vm_mode': 'hvm'}},
            numa_topology=None, pci_requests={'requests': []})

        asked, wishes = legacy_writing.dicts(spec)

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

    def test_what_is_not_set_is_not_told(self):
        self.assertEqual(
            ({'num_instances': 1, 'image': {}, 'instance_properties': {},
              'instance_type': {}}, {}),
            legacy_writing.dicts(objects.RequestSpec()))

    def test_where_is_told_as_before(self):
        target = objects.Destination(host='h9')
        spec = builders.request(
            ignore_hosts=['h1'], force_hosts=[], force_nodes=['n1'],
            requested_destination=target,
            limits=objects.SchedulerLimits(vcpu=4, disk_gb=None),
            retry=objects.SchedulerRetries.obj_from_primitive(wire.RETRIES),
            hints={'one': 'a', 'two': ['a', 'b'], 'none': []})

        _, wishes = legacy_writing.dicts(spec)

        self.assertEqual({
            'ignore_hosts': ['h1'], 'force_nodes': ['n1'],
            'requested_destination': target, 'limits': {'vcpu': 4},
            'retry': {'num_attempts': 1, 'hosts': [['h', 'n']]},
            'scheduler_hints': {'one': 'a', 'two': ['a', 'b'], 'none': []},
        }, wishes)

    def test_limits_without_any_limit_are_told(self):
        _, wishes = legacy_writing.dicts(builders.request(
            limits=objects.SchedulerLimits()))

        self.assertEqual({'limits': {}}, wishes)

    def test_group_is_told_in_pieces(self):
        _, wishes = legacy_writing.dicts(builders.request(group={
            'policy': 'affinity', 'members': ['b', 'a', 'a']}))

        self.assertEqual({
            'group_updated': True, 'group_policies': ['affinity'],
            'group_hosts': [], 'group_members': ['a', 'b'],
            'group_uuid': '00000000-0000-0000-0000-000000000003'}, wishes)

    def test_what_nova_did_not_tell_is_told_only_where_it_counts(self):
        asked, wishes = legacy_writing.dicts(builders.request(
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


def told(spec):
    """Return what a decision may read of a request."""
    fields = spec.obj_to_primitive()['nova_object.data']
    group = spec.get('instance_group')
    return {
        **{name: value for name, value in fields.items()
           if name != 'instance_group'},
        'group': group and {name: group.get(name) for name in group.fields
                            if name not in UNTOLD}}


class TestThereAndBack(base.TestCase):

    @hypothesis.given(SPECS)
    def test_request_stays_what_it_is(self, spec):
        wire_ = serializer.Serializer()

        sent = jsonutils.dumps(wire_.serialize_entity(
            None, list(legacy_writing.dicts(spec))))
        asked, wishes = wire_.deserialize_entity(None, jsonutils.loads(sent))
        back = legacy_reading.request_spec(asked, wishes)

        expected, got = told(spec), told(back)
        # What the request does not say may be said to be nothing.
        self.assertEqual(expected, {name: got[name] for name in expected})

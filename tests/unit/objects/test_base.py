# SPDX-License-Identifier: Apache-2.0
"""What all objects share: the envelope, the registry, tolerant reading."""

import copy
import datetime
import json

from oslo_versionedobjects import exception as ovo_exception
from oslo_versionedobjects import fields

from cellsched import exception
from cellsched import objects
from cellsched.objects import base as objects_base
from tests.unit import base
from tests.unit.objects import wire


def read(primitive):
    return objects_base.Object.obj_from_primitive(primitive)


class TestEnvelope(base.TestCase):

    def test_object_of_nova_is_read_and_sent_unchanged(self):
        for name, sample in wire.SAMPLES.items():
            sent = json.loads(json.dumps(sample))

            again = read(sent).obj_to_primitive()

            self.assertEqual(wire.without_changes(sample),
                             wire.without_changes(again), name)
            self.assertEqual(again, json.loads(json.dumps(again)), name)

    def test_empty_list_is_read(self):
        self.assertEqual([], list(read(wire.EMPTY_LIST)))

    def test_changes_list_only_sent_fields(self):
        spec = read(wire.REQUEST_SPEC)
        spec.num_instances = 3

        sent = spec.obj_to_primitive()

        self.assertLessEqual(set(sent.get('nova_object.changes', ())),
                             set(sent['nova_object.data']))


class TestTolerance(base.TestCase):

    def changed(self, sample, **envelope):
        changed = copy.deepcopy(sample)
        changed.update({f'nova_object.{key}': value
                        for key, value in envelope.items()})
        return changed

    def test_unknown_fields_are_ignored(self):
        sample = self.changed(wire.SELECTION, changes=['nodename', 'newer'])
        sample['nova_object.data']['newer'] = {'a': [1]}

        selection = read(sample)

        self.assertEqual('h1', selection.service_host)
        self.assertEqual(wire.without_changes(wire.SELECTION),
                         wire.without_changes(selection.obj_to_primitive()))

    def test_newer_minor_version_is_read_as_the_known_version(self):
        sample = self.changed(wire.REQUEST_SPEC, version='1.99')
        sample['nova_object.data']['newer'] = wire.IMAGE
        sample['nova_object.data']['flavor'] = self.changed(
            wire.FLAVOR, version='1.10.1')

        spec = read(sample)

        self.assertEqual(512, spec.flavor.memory_mb)
        self.assertEqual(wire.without_changes(wire.REQUEST_SPEC),
                         wire.without_changes(spec.obj_to_primitive()))

    def test_older_minor_version_is_read_and_kept(self):
        sample = self.changed(wire.SELECTION, version='1.0')
        del sample['nova_object.data']['availability_zone']

        selection = read(sample)

        self.assertIsNone(selection.get('availability_zone'))
        self.assertEqual(
            '1.0', selection.obj_to_primitive()['nova_object.version'])

    def test_other_major_version_is_refused(self):
        for version in '2.0', '0.9', '10.1':
            self.assertRaises(
                ovo_exception.IncompatibleObjectVersion, read,
                self.changed(wire.SELECTION, version=version))

    def test_nested_object_of_another_major_version_is_refused(self):
        sample = copy.deepcopy(wire.REQUEST_SPEC)
        sample['nova_object.data']['flavor']['nova_object.version'] = '2.0'

        self.assertRaises(
            ovo_exception.IncompatibleObjectVersion, read, sample)

    def test_unknown_object_is_refused(self):
        for sample in (wire.PCI_REQUESTS,
                       self.changed(wire.SELECTION, namespace='cinder')):
            self.assertRaises(
                ovo_exception.UnsupportedObjectError, read, sample)

    def test_unknown_objects_are_passed_on_unchanged(self):
        sample = copy.deepcopy(wire.REQUEST_SPEC)
        untouched = copy.deepcopy(sample['nova_object.data'])

        again = read(sample).obj_to_primitive()['nova_object.data']

        for name in 'pci_requests', 'security_groups', 'request_level_params':
            self.assertEqual(untouched[name], again[name])

    def test_value_of_a_wrong_type_is_an_error_naming_the_field(self):
        for name, value in (('num_instances', 'many'), ('flavor', 'small'),
                            ('scheduler_hints', ['group']), ('limits', {}),
                            ('image', {'id': 'i'}), ('instance_group', []),
                            ('instance_uuid', None)):
            sample = copy.deepcopy(wire.REQUEST_SPEC)
            sample['nova_object.data'][name] = value

            error = self.assertRaises(exception.InvalidField, read, sample)

            self.assertEqual(('RequestSpec', name),
                             (error.where, error.field))

    def test_error_names_the_field_of_the_nested_object(self):
        sample = copy.deepcopy(wire.REQUEST_SPEC)
        flavor = sample['nova_object.data']['flavor']
        flavor['nova_object.data']['vcpus'] = [1]

        error = self.assertRaises(exception.InvalidField, read, sample)

        self.assertEqual(('Flavor', 'vcpus'), (error.where, error.field))

    def test_incomplete_envelope_is_an_error(self):
        for missing in 'name', 'namespace', 'version', 'data':
            sample = copy.deepcopy(wire.REQUEST_SPEC)
            del sample['nova_object.data']['flavor'][f'nova_object.{missing}']

            error = self.assertRaises(exception.InvalidField, read, sample)

            self.assertEqual('flavor', error.field)


class TestObject(base.TestCase):

    def test_get_returns_the_value_or_the_default(self):
        destination = objects.Destination(host='h', node=None)

        self.assertEqual('h', destination.get('host'))
        self.assertIsNone(destination.get('node', 'default'))
        self.assertEqual('default', destination.get('cell', 'default'))
        self.assertIsNone(destination.get('cell'))

    def test_unset_field_is_not_loaded(self):
        self.assertRaises(
            NotImplementedError, getattr, objects.Flavor(), 'name')

    def test_copy_with_other_values_does_not_change_the_original(self):
        first = read(wire.SELECTION)
        first.obj_reset_changes()
        sent = first.obj_to_primitive()

        other = first.but(service_host='other')
        other.nodename = 'another'

        self.assertEqual(sent, first.obj_to_primitive())
        self.assertNotIn('nodename', first.obj_what_changed())
        self.assertEqual(
            {**sent['nova_object.data'], 'service_host': 'other',
             'nodename': 'another'},
            other.obj_to_primitive()['nova_object.data'])

    def test_set_fields_have_changed(self):
        flavor = objects.Flavor(name='a')
        flavor.vcpus = 1
        spec = objects.RequestSpec(flavor=flavor)

        self.assertEqual({'name', 'vcpus'}, flavor.obj_what_changed())
        spec.obj_reset_changes()
        self.assertEqual({'flavor'}, spec.obj_what_changed())
        spec.obj_reset_changes(recursive=True)
        self.assertEqual(set(), spec.obj_what_changed())

    def test_changes_of_some_fields_are_reset(self):
        flavor = objects.Flavor(name='a', vcpus=1)

        flavor.obj_reset_changes(['name'])

        self.assertEqual({'vcpus'}, flavor.obj_what_changed())

    def test_changes_are_read_from_the_envelope(self):
        self.assertEqual(set(), objects.Flavor.obj_from_primitive(
            objects.Flavor(name='a').obj_to_primitive()).obj_what_changed())
        sample = objects.Flavor(name='a').obj_to_primitive()
        sample['nova_object.changes'] = ['name', 'unknown']
        self.assertEqual(
            {'name'}, objects.Flavor.obj_from_primitive(
                sample).obj_what_changed())

    def test_deep_copy_is_independent_and_keeps_the_changes(self):
        first = objects.Flavor(name='a', extra_specs={'b': 'c'})
        first.obj_reset_changes(['name'])

        other = copy.deepcopy(first)
        other.extra_specs['b'] = 'd'

        self.assertEqual('c', first.extra_specs['b'])
        self.assertEqual('a', other.name)
        self.assertEqual({'extra_specs'}, other.obj_what_changed())

    def test_deleted_field_is_not_set(self):
        flavor = objects.Flavor(name='a')
        del flavor.name

        self.assertFalse(flavor.obj_attr_is_set('name'))
        self.assertRaises(AttributeError, delattr, flavor, 'name')

    def test_query_of_an_undefined_field_is_an_error(self):
        self.assertRaises(
            AttributeError, objects.Flavor().obj_attr_is_set, 'colour')

    def test_object_has_the_context_of_its_reader(self):
        spec = objects.RequestSpec.obj_from_primitive(
            wire.REQUEST_SPEC, 'context')

        self.assertEqual('context', spec.obj_context)
        self.assertEqual('context', spec.flavor.obj_context)
        self.assertEqual('context', spec.but(num_instances=2).obj_context)


class TestRaw(base.TestCase):

    def test_raw_value_is_kept_unchanged(self):
        for value in ({'a': [1, None]}, [], 'text', 1.5, wire.PCI_REQUESTS):
            spec = objects.RequestSpec(pci_requests=value)

            self.assertIs(value, spec.pci_requests)
            sent = spec.obj_to_primitive()
            self.assertEqual(value, sent['nova_object.data']['pci_requests'])

    def test_null_is_kept_only_in_nullable_fields(self):
        self.assertIsNone(objects.RequestSpec(
            numa_topology=None).numa_topology)
        self.assertRaises(
            ValueError, objects.RequestSpec, security_groups=None)


TIME = datetime.datetime(2026, 1, 2, 3, 4, 5)

#: What may come, or be given, in place of anything.
ANYTHING = (
    True, 0, -1, 1.5, '', 'text', '1', None, [], ['a'], ['a', 1], ['a', None],
    [['a']], {}, {'a': 'b'}, {'a': 1}, {'a': None}, {'a': ['b']},
    {'a': ['b', 1]}, {'a': 'b', 'c': ['d']}, {1: 'a'}, {1: ['a']},
    '2026-01-02T03:04:05Z', '2026-01-02T03:04:05', '2026-01-02 03:04:05Z',
    '2026-01-02T03:04:05+01:00', '2026-01-02T03:04:05.5Z',
    '2026-13-02T03:04:05Z', '2026-W01-1T03:04:05Z', '20260102T030405.123Z',
    '2026-01-02T24:00:00Z', '٢٠٢٦-01-02T03:04:05Z',
    wire.FLAVOR, wire.IMAGE, [wire.FLAVOR], [wire.FLAVOR, 1], ['a', {}],
    {'nova_object.name': 'Flavor'},
    TIME, TIME.replace(microsecond=6), TIME.replace(tzinfo=datetime.UTC),
    objects.Flavor(name='small'), [objects.Flavor(name='small')])


def outcome(function, *args):
    """Return what a function makes, or that it refuses."""
    try:
        return shown(function(*args))
    except Exception:
        return 'refused'


def shown(value):
    if isinstance(value, objects_base.Object):
        return value.obj_to_primitive()
    if isinstance(value, list):
        return [shown(each) for each in value]
    return type(value) if value is None else value


class TestKinds(base.TestCase):

    def setUp(self):
        super().setUp()
        self.kinds = [
            (newest(), kind)
            for [newest, *_] in objects_base.Registry.obj_classes().values()
            for kind in newest._kinds.values()]

    def test_short_read_equals_read_of_the_field(self):
        for obj, kind in self.kinds:
            for value in ANYTHING:
                if type(value) in kind.plain:
                    continue
                short = outcome(kind.read, obj, value)
                if short is not objects_base.OTHER:
                    self.assertEqual(outcome(
                        lambda: kind.field.coerce(
                            obj, kind.name, kind.field.from_primitive(
                                obj, kind.name, value))),
                        short, (kind.name, value))

    def test_short_coercion_equals_coercion_of_the_field(self):
        for obj, kind in self.kinds:
            for value in ANYTHING:
                short = (value if type(value) in kind.plain
                         else kind.take(value))
                if short is not objects_base.OTHER:
                    self.assertEqual(
                        outcome(kind.field.coerce, obj, kind.name, value),
                        shown(short), (kind.name, value))

    def test_short_write_equals_write_of_the_field(self):
        for obj, kind in self.kinds:
            for value in ANYTHING:
                kept = outcome(kind.field.coerce, obj, kind.name, value)
                if kept == 'refused' or type(value) in objects_base.PLAIN:
                    continue
                kept = kind.field.coerce(obj, kind.name, value)
                self.assertEqual(
                    kind.field.to_primitive(obj, kind.name, kept),
                    kind.write(obj, kept), (kind.name, value))

    def test_stored_value_is_a_copy(self):
        for name, came in (('ignore_hosts', ['h']),
                           ('scheduler_hints', {'group': ['g']})):
            spec = objects.RequestSpec(**{name: came})

            spec.get(name).clear()

            self.assertTrue(came)

    def test_time_with_a_zone_is_read_by_the_field(self):
        kind = objects_base.kind_of('at', fields.DateTimeField())

        self.assertIs(
            objects_base.OTHER, kind.read(None, '2026-01-02T03:04:05Z'))
        self.assertIs(objects_base.OTHER, kind.take(TIME))

    def test_each_field_has_a_short_read(self):
        for obj, kind in self.kinds:
            if not isinstance(kind.field, objects_base.SetOfStringsField):
                self.assertIsNot(objects_base.Kind, type(kind), kind.name)

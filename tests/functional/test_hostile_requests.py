# SPDX-License-Identifier: Apache-2.0
"""Strangers ask for servers, through the API and straight of the scheduler.

Each wrong request is answered with one clear error, takes nothing, and does
not keep the next good one from being served.
"""

import json
import uuid

import oslo_messaging

from cellsched import context
from cellsched import exception
from cellsched import objects
from cellsched.rpc import scheduler
from cellsched.standalone import deployment
from cellsched.testing import builders
from tests.functional import base
from tests.functional import hostile

STRANGER = context.member('other', 'other')

#: Most of what there is, with the plug-ins that read what users write.
FILTERS = (
    'RetryFilter', 'AvailabilityZoneFilter', 'ComputeFilter',
    'ComputeCapabilitiesFilter', 'ImagePropertiesFilter',
    'AggregateInstanceExtraSpecsFilter', 'AggregateImagePropertiesIsolation',
    'AggregateMultiTenancyIsolation', 'AggregateTypeAffinityFilter',
    'RamFilter', 'CoreFilter', 'DiskFilter', 'IoOpsFilter',
    'NumInstancesFilter', 'IsolatedHostsFilter', 'CellFilter', 'JsonFilter',
    'DifferentHostFilter', 'SameHostFilter', 'SimpleCIDRAffinityFilter',
    'ServerGroupAntiAffinityFilter', 'ServerGroupAffinityFilter',
    'ServerGroupSpreadFilter')


class HostileTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy(
            {'cell1': [
                deployment.DeployedHost('a1', availability_zone='moon')],
             'cell2': ['b1']},
            filter_scheduler={'enabled_filters': FILTERS,
                              'max_io_ops_per_host': 1000})

    def assertClear(self, error):
        """An error is one short line, and nothing a terminal would obey."""
        text = error.args[0].partition('\nTraceback')[0]
        self.assertLess(len(text), 1000)
        self.assertTrue(text.isprintable(), ascii(text))

    def assertQuiet(self):
        """The log has no traceback, no secret and no line of a stranger."""
        for bad in ('Traceback', 'sqlite:///'):
            self.assertNotIn(bad, self.logs.output)
        self.assertFalse([line[:99] for line in self.logs.output.splitlines()
                          if len(line) > 10_000 or not line.isprintable()
                          or line.startswith('INFO root')])

    def assertNoClaims(self):
        self.assertEqual({}, self._claimed())


class TestThroughTheAPI(HostileTestCase):

    def assertRefused(self, field, **wishes):
        error = self.assertRaises(
            exception.InvalidField, self.create, **wishes)
        self.assertTrue(error.field.startswith(field), error.field)
        self.assertClear(error)

    def test_values_out_of_bounds_are_refused(self):
        for field, cases in hostile.WISHES.items():
            for wishes in cases:
                with self.subTest(field=field, wishes=str(wishes)[:60]):
                    self.assertRefused(field, **wishes)

        self.assertEqual([], self.listed())
        [built] = self.built()
        self.assertEqual('ACTIVE', built.status)
        self.assertQuiet()

    def test_invalid_hint_values_are_refused_without_a_claim(self):
        for hint, values in hostile.HINTS:
            with self.subTest(hint=hint, value=str(values)[:60]):
                self.assertRefused(f'hints.{hint}', hints={
                    **hostile.BESIDE.get(hint, {}), hint: values})
        # A filter refuses what depends on the columns of hosts.
        [server] = self.built(hints={'query': [hostile.ORDER]})
        self.assertEqual('ERROR', server.status)
        self.assertIn('scheduler_hints.query', server.reason)

        self.assertNoClaims()
        self.assertQuiet()
        [built] = self.built()
        self.assertEqual('ACTIVE', built.status)

    def test_unusual_values_find_no_host(self):
        for wishes in hostile.ODD:
            with self.subTest(wishes=str(wishes)[:60]):
                [server] = self.built(**wishes)
                self.assertEqual('ERROR', server.status)
                self.assertIn('No valid host', server.reason)

        self.assertNoClaims()
        self.assertQuiet()

    def test_foreign_or_deleted_group_is_not_found(self):
        groups = self.world.api.server_groups
        theirs = groups.create(STRANGER, 'theirs', 'affinity')
        deleted = groups.create(base.USER, 'deleted', 'affinity')
        groups.delete(base.USER, deleted.uuid)

        for group in (theirs.uuid, deleted.uuid, str(uuid.uuid4()), '%', "'"):
            error = self.assertRaises(
                exception.InstanceGroupNotFound, self.create,
                hints={'group': [group]})
            self.assertClear(error)

        self.assertEqual([], self.listed())
        self.assertEqual([], groups.get(STRANGER, theirs.uuid).members)


class TestStraightToTheScheduler(HostileTestCase):

    def setUp(self):
        super().setUp()
        self.scheduler = scheduler.SchedulerAPI(
            self.world.api.parts.transports.get(), timeout_s=300)
        self.uuid = str(uuid.uuid4())

    def select(self, spec, uuids=None):
        """Send what is given as it is, an envelope or anything else."""
        return self.scheduler.call(
            base.USER, 'select_destinations', '4.5', spec_obj=spec,
            instance_uuids=[self.uuid] if uuids is None else uuids,
            return_objects=True)

    def spec(self, path='', value=None):
        """Return the envelope of a good request, but for one field."""
        spec = builders.request(memory_mb=512).obj_to_primitive()
        here = spec['nova_object.data']
        *parents, last = path.split('.')
        for name in parents:
            here = here[name]['nova_object.data']
        if path:
            here[last] = value
        return spec

    def assertServes(self):
        """The next good request is served, and is the only one that is."""
        self.assertNoClaims()
        [[chosen]] = self.select(self.spec())
        self.assertEqual({self.uuid}, set(
            self.world.api.parts.claims.claims_of([self.uuid])))
        self.assertIn(chosen.service_host, ('a1', 'b1'))
        self.assertQuiet()

    def test_wrong_field_is_refused_by_its_name(self):
        for path, values in hostile.FIELDS.items():
            for value in values:
                with self.subTest(path=path, value=str(value)[:60]):
                    error = self.assertRaises(
                        exception.InvalidField, self.select,
                        self.spec(path, value))
                    name = path.rpartition('.')[2]
                    self.assertIn(name, f'{error.where}.{error.field}')
                    self.assertClear(error)

        self.assertServes()

    def test_hint_refused_by_a_filter_is_named(self):
        for hint, values in [*hostile.HINTS, *hostile.LONG_HINTS]:
            with self.subTest(hint=hint, value=str(values)[:60]):
                error = self.assertRaises(
                    exception.InvalidField, self.select,
                    self.spec('scheduler_hints', {
                        **hostile.BESIDE.get(hint, {}), hint: values}))
                self.assertIn(f'scheduler_hints.{hint}', error.field)
                self.assertClear(error)

        self.assertServes()

    def test_unusual_value_finds_no_host(self):
        for path, value in hostile.ODD_FIELDS:
            with self.subTest(path=path, value=str(value)[:60]):
                error = self.assertRaises(
                    exception.NoValidHost, self.select,
                    self.spec(path, value))
                self.assertClear(error)

        self.assertServes()

    def test_group_with_wrong_members_or_rules_is_refused(self):
        group = objects.InstanceGroup(
            uuid=str(uuid.uuid4()), policy='anti-affinity', members=[],
            hosts=[], rules={}).obj_to_primitive()
        for field, values in hostile.GROUP.items():
            for value in values:
                with self.subTest(field=field, value=str(value)[:60]):
                    sent = {**group, 'nova_object.data': {
                        **group['nova_object.data'], field: value}}
                    error = self.assertRaises(
                        exception.InvalidField, self.select,
                        self.spec('instance_group', sent))
                    self.assertIn(field.strip('_'), error.field)
                    self.assertClear(error)

        self.assertServes()

    def test_invalid_instances_are_refused(self):
        for uuids in hostile.UUIDS:
            with self.subTest(uuids=str(uuids)[:60]):
                error = self.assertRaises(
                    exception.InvalidField, self.select, self.spec(), uuids)
                self.assertEqual('instance_uuids', error.field)
                self.assertClear(error)

        self.assertServes()

    def test_invalid_request_is_refused(self):
        good = self.spec()
        for bad in ({}, [], '', 5, None, [good],
                    {**good, 'nova_object.name': []},
                    {**good, 'nova_object.name': 'Unknown'},
                    {**good, 'nova_object.version': 'x'},
                    {**good, 'nova_object.version': 5},
                    {**good, 'nova_object.data': 'x'},
                    {'nova_object.name': 'RequestSpec'}):
            with self.subTest(bad=str(bad)[:60]):
                self.assertClear(self.assertRaises(
                    exception.InvalidField, self.select, bad))

        self.assertServes()

    def test_request_of_another_major_version_is_refused(self):
        error = self.assertRaises(
            oslo_messaging.RemoteError, self.select,
            {**self.spec(), 'nova_object.version': '99.0'})

        self.assertEqual('IncompatibleObjectVersion', error.exc_type)
        self.assertServes()

    def test_overlong_query_is_not_parsed(self):
        parsed, loads = [], json.loads

        def recording(text, *args, **kwargs):
            parsed.append(text[:5])
            return loads(text, *args, **kwargs)

        self.patch(json, 'loads', recording)
        self.select(self.spec('scheduler_hints', {'query': ['["and"]']}))
        self.assertIn('["and', parsed)

        self.assertRaises(
            exception.InvalidField, self.select,
            self.spec('scheduler_hints', {'query': ['[' * 1_000_000]}))

        self.assertNotIn('[[[[[', parsed)

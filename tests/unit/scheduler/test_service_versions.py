# SPDX-License-Identifier: Apache-2.0
"""Callers of every version are answered in the form that they expect."""

import oslo_messaging

from cellsched import exception
from cellsched import objects
from cellsched.testing import builders
from tests.unit.db import samples
from tests.unit.scheduler import services

FLAVOR = {'vcpus': 3, 'memory_mb': 512, 'root_gb': 1}

DICT = {'host': 'host1', 'nodename': 'node1', 'limits': {'vcpu': 16}}


class VersionsTestCase(services.SchedulerTestCase):

    def ask(self, version='4.5', **arguments):
        return self.call('select_destinations', version, **arguments)

    def assertAnswered(self, count, vcpus, claim, answer):
        """It was this request that was answered, in the older form."""
        self.assertEqual([DICT] * count, answer)
        [(_, request, uuids, alternates)] = self.driver.asked
        self.assertEqual((vcpus, count, 0), (
            request.flavor.vcpus, len(set(uuids)), alternates))
        self.assertEqual([claim], self.driver.claims)
        return request, uuids

    def assertRefused(self, field, **arguments):
        error = self.assertRaises(
            exception.InvalidField, self.ask, **arguments)

        self.assertEqual(('select_destinations', field),
                         (error.where, error.field))
        self.assertEqual([], self.driver.asked)
        self.assertNotIn('Traceback', self.logs.output)


class TestVersions(VersionsTestCase):

    def test_two_dicts(self):
        for version in ('4.0', '4.1', '4.2', '4.5'):
            self.driver.asked, self.driver.claims = [], []
            request, _ = self.assertAnswered(3, 3, False, self.ask(
                version, request_spec={
                    'instance_type': FLAVOR, 'num_instances': 3,
                    'instance_properties': {'project_id': 'p'}},
                filter_properties={'ignore_hosts': ['h']}))
            self.assertEqual(('p', ['h']),
                             (request.project_id, request.ignore_hosts))

    def test_requests_of_each_form_are_answered(self):
        spec, dicts = builders.request(vcpus=7), {'instance_type': FLAVOR}
        most = services.INSTANCES_MAX
        for version, count, vcpus, claim, arguments in (
                ('4.0', 1, 3, False, {'request_spec': dicts}),
                # Named instances are claimed.
                ('4.5', 2, 3, True, {
                    'request_spec': dicts, 'filter_properties': {},
                    'instance_uuids': self.uuids}),
                ('4.4', 2, 7, True, {
                    'spec_obj': builders.request(vcpus=7, num_instances=9),
                    'instance_uuids': self.uuids}),
                ('4.5', 2, 7, True, {
                    'spec_obj': spec, 'instance_uuids': self.uuids,
                    'return_objects': False, 'return_alternates': True}),
                # The object counts more than the dicts.
                ('4.5', 1, 7, False, {
                    'request_spec': dicts, 'filter_properties': 5,
                    'spec_obj': spec}),
                ('4.3', most, 7, False, {'spec_obj': builders.request(
                    vcpus=7, num_instances=most)}),
                ('4.3', 1, 1, False, {'spec_obj': objects.RequestSpec(
                    flavor=samples.flavor())}),
                ('4.5', 1, 7, False, {
                    'spec_obj': spec, 'instance_uuids': None})):
            with self.subTest(version=version, arguments=arguments):
                self.driver.asked, self.driver.claims = [], []
                _, uuids = self.assertAnswered(
                    count, vcpus, claim, self.ask(version, **arguments))
                if claim:
                    self.assertEqual(self.uuids, uuids)

    def test_newer_versions_are_refused(self):
        for version in ('4.6', '5.0', '3.0', '99.0'):
            error = self.assertRaises(
                oslo_messaging.RemoteError, self.ask, version,
                spec_obj=builders.request(), instance_uuids=self.uuids)
            self.assertEqual('UnsupportedVersion', error.exc_type)


class TestBadInput(VersionsTestCase):

    def test_flags_must_be_flags(self):
        for name in ('return_objects', 'return_alternates'):
            for bad in ('1', 'true', '', 1, 0, 1.0, None, [], {}, [True]):
                self.assertRefused(
                    name, spec_obj=builders.request(),
                    instance_uuids=self.uuids, **{name: bad})

    def test_request_is_required(self):
        self.assertRefused('request_spec.instance_type.vcpus')
        self.assertRefused('request_spec.instance_type.vcpus',
                           instance_uuids=self.uuids)
        self.assertRefused('spec_obj', spec_obj=None)
        self.assertRefused('spec_obj', spec_obj=None,
                           request_spec={'instance_type': FLAVOR})

    def test_dicts_must_be_dicts(self):
        for bad in (5, 'x', True, [], [{}], builders.request()):
            self.assertRefused('request_spec', request_spec=bad)
            self.assertRefused('filter_properties', filter_properties=bad,
                               request_spec={'instance_type': FLAVOR})

    def test_count_must_be_a_number_within_bounds(self):
        asked = {'instance_type': FLAVOR}
        for bad in (True, '1', 1.5, [1], {}):
            self.assertRefused('request_spec.num_instances', request_spec={
                **asked, 'num_instances': bad})
        for bad in (0, -1, services.INSTANCES_MAX + 1, 2 ** 31, 2 ** 63):
            self.assertRefused('spec_obj.num_instances', request_spec={
                **asked, 'num_instances': bad})
            self.assertRefused('spec_obj.num_instances', spec_obj=(
                builders.request(num_instances=bad)))

    def test_lists_in_dicts_are_bounded(self):
        self.assertRefused(
            'spec_obj.ignore_hosts', request_spec={'instance_type': FLAVOR},
            filter_properties={
                'ignore_hosts': ['x'] * (services.VALUES_MAX + 1)})

# SPDX-License-Identifier: Apache-2.0
"""Scenarios of large deployments: read, checked and changed."""

import pathlib

from cellsched import exception
from cellsched.simulator.capacity import scenario
from tests.unit import base

LEAST = {'name': 'least', 'hosts': {'count': 100}, 'load': {}}


def of(**keys):
    return scenario.of(pathlib.Path('a.yaml'), {**LEAST, **keys})


class TestOf(base.TestCase):

    def assertInvalid(self, field, expected, **keys):
        exc = self.assertRaises(exception.InvalidField, of, **keys)
        self.assertEqual(('a.yaml', field), (
            exc.kwargs['where'], exc.kwargs['field']))
        self.assertIn(expected, exc.detail)

    def test_missing_values_have_their_defaults(self):
        made = of(schedulers={'count': 3}, store={'kind': 'etcd'})

        self.assertEqual((3, 8), (
            made.schedulers.count, made.schedulers.threads))
        self.assertEqual(('etcd', 0.5), (
            made.store.kind, made.store.round_trip_ms))
        self.assertEqual((1, 60), (made.seed, made.measure.every_s))
        self.assertEqual([100], [each.count for each in made.hosts])
        self.assertEqual(3, made.document['schedulers']['count'])
        self.assertEqual(made.document, scenario.of(
            made.path, made.document).document)

    def test_wrong_input_is_refused_with_its_field(self):
        for field, expected, keys in (
                ('hours', 'a number above 0', {'hours': 0}),
                ('hours', 'a number', {'hours': float('nan')}),
                ('hosts[0].count', 'from 1 to', {'hosts': {'count': 0}}),
                ('hosts[0].count', 'a whole number',
                 {'hosts': [{'count': 'x'}]}),
                ('hosts', 'at least 1', {'hosts': []}),
                ('schedulers.count', 'from 1 to',
                 {'schedulers': {'count': 0}}),
                ('schedulers', 'one of count',
                 {'schedulers': {'number': 1}}),
                ('store.kind', 'one of memory', {'store': {'kind': 'x'}}),
                ('store.defect', 'one of memory',
                 {'store': {'kind': 'etcd', 'defect': 0.1}}),
                ('name', 'small letters', {'name': 'A name'}),
                ('cells', '101 cells are too many', {'cells': 101}),
                ('faults[0].kind', 'one of rack',
                 {'faults': [{'kind': 'x', 'at': 1}]}),
                ('faults[0].at', 'it is missing',
                 {'faults': [{'kind': 'rack'}]}),
                ('faults[0].rack', 'at most 2',
                 {'faults': [{'kind': 'rack', 'at': 1, 'rack': 3}]}),
                ('faults[0].share', 'to 1',
                 {'faults': [{'kind': 'mass-delete', 'at': 1, 'share': 2}]})):
            self.assertInvalid(field, expected, **keys)


class TestLoad(base.TestCase):

    def test_scenarios_of_the_project_are_valid(self):
        found = scenario.bundled()

        self.assertIn('nova-floor', found)
        for name, description in found.items():
            self.assertEqual(name, scenario.load(name).name)
            self.assertTrue(description, name)

    def test_keys_are_changed(self):
        made = scenario.load('rack-loss', 7, [
            'schedulers.count=4', 'faults.0.rack=5', 'store.kind=etcd'])

        self.assertEqual((7, 4, 5, 'etcd'), (
            made.seed, made.schedulers.count, made.faults[0]['rack'],
            made.store.kind))

    def test_malformed_change_is_refused(self):
        for change in ('count', '=4', 'hosts.=4', 'faults.9.at=1', 'a=]',
                       'hours.x=1'):
            exc = self.assertRaises(
                exception.InvalidField, scenario.load, 'rack-loss', None,
                [change])
            self.assertIn('KEY=VALUE', str(exc))

    def test_unknown_scenario_is_refused_with_the_known_names(self):
        exc = self.assertRaises(
            exception.InvalidField, scenario.load, 'nova-flor')

        self.assertIn('nova-floor', str(exc))

    def test_unreadable_file_is_named(self):
        exc = self.assertRaises(
            exception.InvalidField, scenario.load, '/no/file.yaml')

        self.assertIn('/no/file.yaml', str(exc))

# SPDX-License-Identifier: Apache-2.0
"""Requests of which something is lost or cannot be read."""

import copy
import json

import hypothesis
from hypothesis import strategies

from cellsched.db.api import build_requests
from cellsched.db.api import request_leases
from cellsched.db.api import request_specs
from cellsched import exception
from tests.unit.db.api import base
from tests.unit.db import samples

_VALUES = strategies.sampled_from([
    None, True, -1, 2 ** 70, 1e400, float('nan'), '', 'text', '\0', [], [[]],
    {}, {'': None}, {'nova_object.name': 'Flavor'}])


class BrokenCase(base.TestCase):

    def accept(self, count=1, **options):
        uuids = samples.uuids(count)
        samples.accept(self.database, uuids, **options)
        return uuids

    def spoil(self, uuid, table='build_requests', **values):
        self.write(samples.spoil, uuid, table, **values)

    def lease(self, uuids):
        return {each.request.instance_uuid: each for each in self.write(
            build_requests.lease, uuids, 'me', 1000.0, 1060.0)}


class TestLeasing(BrokenCase):

    def test_request_that_cannot_be_read_is_leased_as_broken(self):
        for column in 'instance', 'tags', 'block_device_mappings':
            for text in samples.UNREADABLE[1:]:
                broken, whole = self.accept(2)
                self.spoil(broken, **{column: text})

                leased = self.lease([broken, whole])

                if column == 'instance' or text != 'null':
                    self.assertEqual(
                        ('build request', 'cannot be read'),
                        (leased[broken].broken.what,
                         leased[broken].broken.problem), (column, text[:99]))
                self.assertIsNone(leased[whole].broken)
                self.assertEqual('server', leased[
                    whole].request.instance.display_name)

    def test_request_without_any_text_is_leased_as_broken(self):
        broken, = self.accept()
        self.spoil(broken, instance=None)

        self.assertEqual('cannot be read',
                         self.lease([broken])[broken].broken.problem)

    def test_request_without_specification_is_leased_as_broken(self):
        broken, whole = self.accept(2)
        self.spoil(broken, 'request_specs')

        leased = self.lease([broken, whole])

        self.assertEqual(
            ('request specification', 'is missing'),
            (leased[broken].broken.what, leased[broken].broken.problem))
        self.assertEqual(broken, leased[broken].spec.instance_uuid)
        self.assertIsNone(leased[whole].broken)

    def test_specification_that_cannot_be_read_is_leased_as_broken(self):
        for text in samples.UNREADABLE:
            broken, whole = self.accept(2)
            self.spoil(broken, 'request_specs', spec=text)

            leased = self.lease([broken, whole])

            self.assertEqual('cannot be read', leased[broken].broken.problem)
            self.assertIsNone(leased[whole].broken)

    def test_what_is_like_a_broken_one_is_broken_too(self):
        # What they have in common is read once.
        uuids = self.accept(3)
        for uuid in uuids:
            spec = self.read(request_specs.get, uuid)
            spec['nova_object.data']['flavor'] = 'small'
            self.spoil(uuid, 'request_specs', spec=json.dumps(spec))

        self.assertEqual(
            3, sum(each.broken is not None
                   for each in self.lease(uuids).values()))

    @hypothesis.given(strategies.lists(strategies.tuples(
        strategies.sampled_from(['nova_object.data', 'nova_object.name',
                                 'nova_object.version',
                                 'nova_object.namespace', 'flavor',
                                 'created_at', 'vcpus']),
        _VALUES), min_size=1, max_size=3))
    def test_whatever_a_text_says_others_are_leased(self, changes):
        broken, whole = self.accept(2)
        for table, column in (('build_requests', 'instance'),
                              ('request_specs', 'spec')):
            said = samples.instance(broken).obj_to_primitive()
            for name, value in changes:
                part = (said if name.startswith('nova_object')
                        else said['nova_object.data'])
                if isinstance(part, dict):
                    part[name] = copy.deepcopy(value)
            self.spoil(broken, table, **{column: json.dumps(said)})

        leased = self.lease([broken, whole])

        self.assertEqual({broken, whole}, {*leased})
        self.assertIsNone(leased[whole].broken)


class TestReading(BrokenCase):

    def test_columns_tell_of_a_request_that_cannot_be_read(self):
        broken, = self.accept(project_id='theirs')
        self.spoil(broken, instance='nonsense')

        request = self.read(build_requests.get, broken)

        self.assertEqual(
            ('theirs', 'building', samples.NOW),
            (request.project_id, request.instance.vm_state,
             request.instance.created_at))
        self.assertEqual(
            f'The build request of {broken} cannot be read.',
            request.failure)

    def test_what_it_failed_of_before_is_told_first(self):
        broken, = self.accept()
        self.spoil(broken, instance='nonsense', failure='No cell0.')

        self.assertEqual('No cell0.',
                         self.read(build_requests.get, broken).failure)

    def test_list_has_what_can_be_read_and_what_cannot(self):
        uuids = self.accept(3)
        self.spoil(uuids[1], instance='nonsense')

        self.assertEqual(
            uuids, [each.instance_uuid for each in self.read(
                build_requests.list_all)])

    def test_user_cannot_change_what_cannot_be_read(self):
        broken, = self.accept()
        self.spoil(broken, instance='nonsense')

        self.assertRaises(
            exception.RequestUnreadable, self.write, build_requests.revise,
            broken, lambda request: None)

    def test_batch_is_found_beside_one_that_cannot_be_read(self):
        due = request_leases.LeaseDeadline(1e10, samples.LATER)
        for text in (*samples.UNREADABLE, None):
            batch = self.accept(3, reservation_id='r-1')
            self.spoil(batch[1], instance=text)

            self.assertEqual(
                [[batch[0], batch[2]], [batch[1]]],
                self.read(request_leases.list_batches, batch, due))
            self.write(build_requests.delete, batch)

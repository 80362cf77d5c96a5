# SPDX-License-Identifier: Apache-2.0
"""Queries for builds that were accepted and have no cell yet."""

import copy
import functools
import json

import hypothesis
from hypothesis import strategies
from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.db.api import build_requests
from cellsched.db.api import models
from cellsched.db import statements
from cellsched import exception
from cellsched import objects
from tests.unit.db.api import base
from tests.unit.db import samples
from tests.unit import racing


class BuildRequestCase(base.TestCase):

    def accept(self, count=1, **options):
        uuids = samples.uuids(count)
        samples.accept(self.database, uuids, **options)
        return uuids

    def lease(self, uuids, owner='me', now=1000.0, expires_at=1060.0):
        return [each.request.instance_uuid for each in self.write(
            build_requests.lease, uuids, owner, now, expires_at)]

    def renew(self, uuids, owner='me', expires_at=1060.0):
        return self.write(
            build_requests.renew, dict.fromkeys(uuids, owner), expires_at)


class TestBuildRequests(BuildRequestCase):

    def test_request_is_stored_as_accepted(self):
        uuid, = self.accept(1, display_name='mine')

        request = self.read(build_requests.get, uuid)

        self.assertEqual(uuid, request.instance_uuid)
        self.assertEqual('project', request.project_id)
        self.assertEqual(samples.NOW, request.created_at)
        self.assertEqual(
            samples.instance(uuid, display_name='mine').obj_to_primitive(),
            request.instance.obj_to_primitive())

    def test_unknown_request_is_none(self):
        self.assertIsNone(
            self.read(build_requests.get, samples.uuids(1)[0]))

    def test_second_request_of_an_instance_is_refused(self):
        uuids = self.accept(1)

        self.assertRaises(
            exception.ConstraintViolated, samples.accept, self.database, uuids)

    def test_requests_of_projects_are_listed(self):
        uuids = self.accept(3)
        other, = self.accept(1, project_id='other')

        def listed(*args):
            return [each.instance_uuid for each in self.read(
                build_requests.list_all, *args)]

        self.assertEqual([*uuids, other], listed())
        self.assertEqual([*uuids, other], listed(['project', 'other']))
        self.assertEqual(uuids, listed(['project']))
        self.assertEqual([], listed(['nobody']))

    def test_deleted_requests_are_returned(self):
        uuids = self.accept(3)

        self.assertEqual(
            set(uuids[:2]), self.write(build_requests.delete, uuids[:2]))
        self.assertEqual(
            {uuids[2]}, self.write(build_requests.delete, uuids))
        self.assertEqual(set(), self.write(build_requests.delete, uuids))

    def test_locked_request_is_skipped_and_the_rest_stays(self):
        dropped, kept = self.accept(2)

        with self.database.writer() as connection:
            build_requests.held(connection, {dropped: 'me'})
            build_requests.drop(connection, [dropped])

        self.assertEqual(
            {kept}, self.read(build_requests.present, [dropped, kept]))

    def test_request_is_deleted_by_a_single_caller(self):
        uuids = self.accept(20)

        # A conductor deletes a batch, users one each.
        told = racing.race(
            *[lambda: self.write(build_requests.delete, uuids)] * 2,
            *[lambda: set().union(*(
                self.write(build_requests.delete, [uuid])
                for uuid in uuids))] * 4)

        self.assertEqual(20, sum(map(len, told)))
        self.assertEqual(set(uuids), set().union(*told))

    def test_single_and_batch_updates_do_not_deadlock(self):
        uuids = self.accept(16)
        self.lease(uuids)

        def drop(those):
            with self.database.writer() as connection:
                build_requests.drop(connection, build_requests.held(
                    connection, dict.fromkeys(those, 'me')))

        told = racing.race(
            *[lambda: self.lease(uuids)] * 2,
            *[lambda: [self.lease([uuid]) for uuid in uuids]] * 2,
            *[functools.partial(drop, uuids[start::4]) for start in range(4)],
            lambda: self.renew(uuids), lambda: self.renew(uuids[::-1]))

        self.assertEqual([], [
            each for each in told if isinstance(each, Exception)])


class TestLease(BuildRequestCase):

    def test_leased_requests_are_in_the_order_of_acceptance(self):
        uuids = self.accept(3, min_count=2)

        leased = self.write(
            build_requests.lease, uuids[::-1], 'me', 1000.0, 1060.0)

        self.assertEqual(
            uuids, [each.request.instance_uuid for each in leased])
        self.assertEqual(
            uuids, [each.spec.instance_uuid for each in leased])
        self.assertEqual([2, 2, 2], [each.min_count for each in leased])
        self.assertEqual(512, leased[0].spec.flavor.memory_mb)

    def test_different_fields_in_a_batch_are_read_from_each(self):
        uuids = [*self.accept(1, launch_index=0, display_name='a'),
                 *self.accept(1, launch_index=1, display_name=None),
                 *self.accept(1),
                 *self.accept(1, launch_index=2, vcpus=4)]

        leased = self.write(build_requests.lease, uuids, 'me', 1000.0, 1060.0)

        self.assertEqual([
            samples.instance(uuid, **fields).obj_to_primitive()
            for uuid, fields in zip(uuids, (
                {'launch_index': 0, 'display_name': 'a'},
                {'launch_index': 1, 'display_name': None}, {},
                {'launch_index': 2, 'vcpus': 4}))],
            [each.request.instance.obj_to_primitive() for each in leased])
        self.assertEqual(uuids, [each.spec.instance_uuid for each in leased])

    def test_leased_request_is_not_leased_by_another_owner(self):
        uuids = self.accept(3)
        self.lease(uuids[:1], 'first')

        self.assertEqual(uuids[1:], self.lease(uuids, 'second'))
        self.assertEqual([], self.lease(uuids, 'third', now=1059.9))
        self.assertEqual(set(uuids[:1]), self.renew(uuids, 'first'))
        self.assertEqual(set(uuids[1:]), self.renew(uuids, 'second'))

    def test_expired_lease_is_taken_by_another_owner(self):
        uuids = self.accept(2)
        self.lease(uuids, 'first', expires_at=1060.0)

        self.assertEqual(
            uuids, self.lease(uuids, 'second', now=1060.0,
                              expires_at=1120.0))
        self.assertEqual([], self.lease(uuids, 'third', now=1119.0))

    def test_deleted_request_is_not_leased(self):
        uuids = self.accept(2)
        self.write(build_requests.delete, uuids[:1])

        self.assertEqual(uuids[1:], self.lease(uuids))
        self.assertEqual([], self.lease(uuids[:1]))
        self.assertEqual([], self.lease([]))
        self.assertEqual({uuids[1]}, self.renew(uuids))

    def test_request_with_earlier_attempts_is_marked(self):
        uuids = self.accept(2)
        self.lease(uuids[:1], 'first')

        leased = self.write(
            build_requests.lease, uuids, 'second', 1060.0, 1120.0)

        self.assertEqual([2, 1], [each.tries for each in leased])

    def test_renewed_lease_lasts_longer(self):
        uuids = self.accept(2)
        self.lease(uuids[:1], 'first')

        self.assertEqual(
            set(uuids[:1]), self.renew(uuids, 'first', 1120.0))

        self.assertEqual(
            uuids[1:], self.lease(uuids, 'second', now=1119.0))
        self.assertEqual(
            uuids, self.lease(uuids, 'third', now=1120.0))

    def test_lease_of_another_owner_is_not_renewed(self):
        uuids = self.accept(2)
        self.lease(uuids, 'first')
        self.lease(uuids[:1], 'second', now=1060.0, expires_at=1120.0)

        self.assertEqual(
            set(uuids[1:]), self.renew(uuids, 'first', 2000.0))
        self.assertEqual(set(), self.renew(uuids[:1], 'first', 2000.0))

        self.assertEqual(
            uuids[:1], self.lease(uuids, 'third', now=1120.0))

    def test_expired_lease_without_a_new_owner_is_renewed(self):
        uuids = self.accept(1)
        self.lease(uuids, 'first')

        self.assertEqual(set(uuids), self.renew(uuids, 'first', 5000.0))
        self.assertEqual([], self.lease(uuids, 'second', now=4999.0))

    def test_only_the_owner_of_the_lease_deletes(self):
        uuids = self.accept(3)
        self.lease(uuids[:2], 'first')
        self.lease(uuids[2:], 'second')

        def delete(uuids, owner):
            return self.write(build_requests.delete, uuids, owner)

        self.assertEqual(set(uuids[:2]), delete(uuids, 'first'))
        self.assertEqual(set(), delete(uuids, 'first'))
        self.assertEqual(set(), delete(uuids[2:], 'first'))
        self.assertEqual(set(uuids[2:]), delete(uuids[2:], 'second'))

    def test_renewal_and_takeover_in_a_race_share_the_requests(self):
        uuids = self.accept(10)
        self.lease(uuids, 'first')

        renewed, *taken = racing.race(
            lambda: self.renew(uuids, 'first', 2000.0),
            *[lambda name=name: set(self.lease(
                uuids, name, now=1060.0, expires_at=2000.0))
              for name in ('second', 'third')])

        self.assertEqual(10, len(renewed) + sum(map(len, taken)))
        self.assertEqual(set(uuids), renewed.union(*taken))

    def test_more_requests_than_a_statement_takes_are_leased(self):
        uuids = self.accept(statements.CHUNK + 1)

        self.assertEqual(uuids, self.lease(uuids))

    def test_request_is_leased_by_a_single_owner_in_a_race(self):
        uuids = self.accept(10)

        for now in 1000.0, 1060.0, 1120.0:
            leased = racing.race(*[
                lambda name=f'{now}-{name}': self.lease(
                    uuids, name, now=now, expires_at=now + 60)
                for name in range(6)])

            self.assertEqual(10, sum(map(len, leased)))
            self.assertEqual(
                set(uuids), {uuid for each in leased for uuid in each})


_VALUES = strategies.sampled_from([
    None, True, -1, 2 ** 70, 1e400, float('nan'), '', 'text', '\0', [], [[]],
    {}, {'': None}, {'nova_object.name': 'Flavor'}])


class BrokenCase(BuildRequestCase):

    def spoil(self, uuid, table='build_requests', **values):
        self.write(samples.spoil, uuid, table, **values)

    def lease(self, uuids):
        return {each.request.instance_uuid: each for each in self.write(
            build_requests.lease, uuids, 'me', 1000.0, 1060.0)}


class TestLeasing(BrokenCase):

    def test_unreadable_request_is_leased_as_broken(self):
        texts = samples.UNREADABLE[1:]
        optional = [text for text in texts if text != 'null']
        for column, unreadable, record in (
                ('instance', [*texts, None], 'build request'),
                ('tags', optional, 'build request'),
                ('block_device_mappings', optional, 'build request'),
                ('quota', [*texts, '{"project": {"cores": "x"}}'],
                 'quota limits'),
                ('spec', samples.UNREADABLE, 'request specification')):
            table = 'request_specs' if column == 'spec' else 'build_requests'
            for text in unreadable:
                broken, whole = self.accept(2)
                self.spoil(broken, table, **{column: text})

                leased = self.lease([broken, whole])

                self.assertEqual(
                    (record, 'cannot be read'),
                    (leased[broken].broken.what,
                     leased[broken].broken.problem),
                    (column, text and text[:99]))
                self.assertIsNone(leased[whole].broken)
                self.assertEqual('server', leased[
                    whole].request.instance.display_name)

    def test_request_without_specification_is_leased_as_broken(self):
        broken, whole = self.accept(2)
        self.spoil(broken, 'request_specs')

        leased = self.lease([broken, whole])

        self.assertEqual(
            ('request specification', 'is missing'),
            (leased[broken].broken.what, leased[broken].broken.problem))
        self.assertEqual(broken, leased[broken].spec.instance_uuid)
        self.assertIsNone(leased[whole].broken)

    def test_copy_of_a_broken_request_is_broken(self):
        # What they have in common is read once.
        uuids = self.accept(3)
        for uuid in uuids:
            spec = self.read(build_requests.get_spec, uuid)
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
    def test_unreadable_text_does_not_block_other_leases(self, changes):
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

    def test_unreadable_request_has_the_values_of_its_columns(self):
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

    def test_stored_failure_precedes_a_failed_read(self):
        broken, = self.accept()
        self.spoil(broken, instance='nonsense', failure='No cell0.')

        self.assertEqual('No cell0.',
                         self.read(build_requests.get, broken).failure)

    def test_list_has_readable_and_unreadable_requests(self):
        uuids = self.accept(3)
        self.spoil(uuids[1], instance='nonsense')

        self.assertEqual(
            uuids, [each.instance_uuid for each in self.read(
                build_requests.list_all)])

    def test_unreadable_request_cannot_be_changed(self):
        broken, = self.accept()
        self.spoil(broken, instance='nonsense')

        self.assertRaises(
            exception.RequestUnreadable, self.write, build_requests.revise,
            broken, lambda request: None)


class RequestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.uuids = samples.uuids(3)
        samples.accept(self.database, self.uuids)

    def revise(self, uuid, name='new', tags=('a',)):
        def change(request):
            request.instance.display_name = name
            request.tags = objects.TagList.made(uuid, tags)

        return self.write(build_requests.revise, uuid, change)

    def lease(self, owner='me', now=0):
        return self.write(
            build_requests.lease, self.uuids, owner, now, now + 60)

    def read_all(self):
        return {each.request.instance_uuid: each for each
                in self.read(build_requests.read, self.uuids)}


class TestRevise(RequestCase):

    def test_changed_request_is_read_afterwards(self):
        uuid = self.uuids[0]

        self.assertTrue(self.revise(uuid))

        request = self.read(build_requests.get, uuid)
        self.assertEqual(('new', ['a']), (
            request.instance.display_name, request.tag_names))
        self.assertEqual([1, 0, 0], [
            self.read_all()[each].revision for each in self.uuids])
        self.assertEqual([1, 0, 0], [each.revision for each in self.lease()])

    def test_deleted_request_is_not_changed(self):
        self.write(build_requests.delete, self.uuids)

        self.assertFalse(self.revise(self.uuids[0]))
        self.assertEqual([], self.read(build_requests.read, self.uuids))

    def test_no_change_of_several_is_lost(self):
        uuid = self.uuids[0]

        def tag(name):
            def change(request):
                request.tags = objects.TagList.made(
                    uuid, [*request.tag_names, name])

            return lambda: self.write(build_requests.revise, uuid, change)

        racing.race(*map(tag, 'abcdef'))

        found = self.read_all()[uuid]
        self.assertEqual('abcdef', ''.join(sorted(found.request.tag_names)))
        self.assertEqual(6, found.revision)

    def test_changed_request_is_not_deleted(self):
        self.lease()
        revisions = {uuid: 0 for uuid in self.uuids[:2]}
        self.revise(self.uuids[0])
        self.revise(self.uuids[2])

        def delete(owner, revisions):
            return self.write(build_requests.delete, self.uuids, owner,
                              revisions)

        self.assertEqual(set(), delete('other', revisions))
        self.assertEqual({self.uuids[1]}, delete('me', revisions))
        self.assertEqual({self.uuids[0]}, delete('me', {
            self.uuids[0]: 1, self.uuids[2]: 0}))
        self.assertEqual([self.uuids[2]], [*self.read_all()])


class TestKept(RequestCase):

    def test_tags_and_devices_are_stored_as_accepted(self):
        uuid, = samples.uuids(1)
        device = objects.BlockDeviceMapping(
            uuid=uuid, instance_uuid=uuid, source_type='blank')
        self.write(build_requests.create, [objects.BuildRequest(
            instance_uuid=uuid, project_id='p', buried=True,
            instance=samples.instance(uuid),
            tags=objects.TagList.made(uuid, ['b', 'a']),
            block_device_mappings=objects.BlockDeviceMappingList(
                objects=[device]))], samples.NOW)

        request = self.read(build_requests.get, uuid)

        self.assertEqual(['b', 'a'], request.tag_names)
        [kept] = request.block_device_mappings
        self.assertEqual(device.obj_to_primitive(), kept.obj_to_primitive())
        self.assertTrue(request.buried)
        self.write(build_requests.mark_unburied, [uuid])
        self.assertFalse(self.read(build_requests.get, uuid).buried)

    def test_removed_tags_are_an_empty_list(self):
        self.revise(self.uuids[0], tags=[])

        self.assertEqual(
            [], self.read(build_requests.get, self.uuids[0]).tag_names)

    def test_only_the_owner_of_the_lease_records_a_failure(self):
        self.lease('me')

        self.write(build_requests.explain, self.uuids, 'x', 'other')
        self.assertEqual({None}, {
            each.request.failure for each in self.read_all().values()})
        self.write(build_requests.explain, self.uuids[:1], 'because', 'me')
        self.assertEqual(['because', None, None], [
            each.request.failure for each in self.read_all().values()])

    def test_held_returns_the_requests_of_the_owner(self):
        self.lease('me')

        self.assertEqual(dict.fromkeys(self.uuids, 0), self.write(
            build_requests.held, dict.fromkeys(self.uuids, 'me')))
        self.assertEqual({}, self.write(
            build_requests.held, dict.fromkeys(self.uuids, 'other')))
        self.assertEqual(dict.fromkeys(self.uuids, 0), self.write(
            build_requests.held, dict.fromkeys(self.uuids)))
        self.assertEqual({}, self.write(build_requests.held, {}))


class TestRequestSpecs(base.TestCase):

    def create(self, *uuids):
        specs = [objects.RequestSpec(
            instance_uuid=uuid, flavor=samples.flavor(),
            scheduler_hints={'group': ['g']}).obj_to_primitive()
            for uuid in uuids]
        self.write(build_requests.create_specs, specs, samples.NOW)

    def test_specification_is_stored_as_sent(self):
        uuids = samples.uuids(2)
        self.create(*uuids)

        rows = self.fetch(
            sa.select(models.request_specs)
            .order_by(models.request_specs.c.id))

        self.assertEqual(uuids, [row.instance_uuid for row in rows])
        spec = objects.RequestSpec.obj_from_primitive(
            jsonutils.loads(rows[1].spec))
        self.assertEqual(uuids[1], spec.instance_uuid)
        self.assertEqual(['g'], spec.hint('group'))

    def test_second_specification_of_an_instance_is_refused(self):
        uuids = samples.uuids(1)
        self.create(*uuids)

        self.assertRaises(exception.ConstraintViolated, self.create, *uuids)

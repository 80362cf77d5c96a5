# SPDX-License-Identifier: Apache-2.0
"""What other services tell every scheduler without waiting for an answer."""

import uuid

from cellsched import clock
from cellsched import exception
from cellsched import objects
from cellsched.testing import builders
from tests.unit.rpc import base
from tests.unit.scheduler import services

ID = str(uuid.UUID(int=7))

MANY = [str(uuid.UUID(int=number))
        for number in range(services.VALUES_MAX + 1)]

CRLF = 'a\r\nroot logged in'

NO_HOSTS = (None, 5, True, [], {}, '', 'x' * 256, 'a\0', CRLF, '\ud800')

NO_IDS = (None, 5, True, [], {}, 'x' * 37, 'a\0', CRLF, '\ud800', '\u0430')


def aggregate(number=1, **fields):
    return objects.Aggregate(id=number, **fields)


def instances(*uuids):
    return objects.InstanceList(
        objects=[objects.Instance(uuid=each) for each in uuids])


class TestNews(services.SchedulerTestCase):

    def received(self, method, version, **arguments):
        """Return what the driver is told of a cast to all."""
        self.call(method, version, cast=True, **arguments)
        return self.driver.told.get(timeout=base.DEADLINE_S)

    def test_aggregates(self):
        both = objects.AggregateList(
            objects=[aggregate(1, hosts=['a']), aggregate(2, hosts=[])])
        for said, heard in ((both, [(1, ['a']), (2, [])]),
                            (aggregate(3, hosts=None), [(3, None)]),
                            (aggregate(4), [(4, None)]),
                            (objects.AggregateList(objects=[]), [])):
            self.assertEqual(('aggregates', heard), self.received(
                'update_aggregates', '4.1', aggregates=said))

    def test_instances_of_a_host(self):
        for said in ([], [ID], MANY[1:]):
            for complete, method, arguments in (
                    (False, 'update_instance_info',
                     {'instance_info': instances(*said)}),
                    (True, 'sync_instance_info', {'instance_uuids': said})):
                self.assertEqual(
                    ('instances', 'a', said, complete), self.received(
                        method, '4.2', host_name='a', **arguments))

    def test_deletions_are_passed_on(self):
        self.assertEqual(('no aggregate', 3), self.received(
            'delete_aggregate', '4.1', aggregate=aggregate(3)))
        self.assertEqual(('no instance', 'a', ID), self.received(
            'delete_instance_info', '4.2', host_name='a', instance_uuid=ID))


#: Looks at the log, each after 0.01 s.
LOOKS = 6000


class TestBadInput(services.SchedulerTestCase):

    def assertRefused(self, field, method, **arguments):
        """It is refused by this name, in one line and without a reply."""
        error = self.assertRaises(
            exception.InvalidField, self.call, method, **arguments)
        self.assertEqual(field, error.field)
        before = len(self.logs.output)

        self.call(method, cast=True, **arguments)

        # One message is processed after the other; its line may be later.
        self.client.select_destinations(
            services.CONTEXT, builders.request(), self.uuids)
        for _ in range(LOOKS):
            if self.logs.output[before:].endswith('\n'):
                break
            clock.Clock().sleep(0.01)
        [line] = self.logs.output[before:].splitlines()
        self.assertTrue(line.startswith(f'Refused {method}: '), line)
        self.assertTrue(line.isprintable(), ascii(line))
        self.assertLess(len(line), 500)
        self.assertTrue(self.driver.told.empty())

    def test_invalid_aggregates_are_refused(self):
        unnamed = objects.Aggregate(name='x')
        for bad in (None, 5, 'x', [], {}, [aggregate()], instances(),
                    objects.Flavor(id=1)):
            self.assertRefused(
                'aggregates', 'update_aggregates', aggregates=bad)
            self.assertRefused(
                'aggregate', 'delete_aggregate', aggregate=bad)
        for field, bad in (
                ('aggregates.id', unnamed),
                ('aggregates', objects.AggregateList(
                    objects=[*map(aggregate, range(len(MANY)))])),
                ('aggregates.hosts', aggregate(hosts=MANY))):
            self.assertRefused(field, 'update_aggregates', aggregates=bad)
        self.assertRefused(
            'aggregate.id', 'delete_aggregate', aggregate=unnamed)

    def test_invalid_instances_are_refused(self):
        unnamed = objects.InstanceList(objects=[objects.Instance(vcpus=1)])
        for method, good, bad in (
                ('update_instance_info', {'instance_info': instances(ID)},
                 (None, 5, 'x', [], [ID], {}, instances(ID).objects[0],
                  unnamed, instances(*MANY))),
                ('delete_instance_info', {'instance_uuid': ID}, NO_IDS),
                ('sync_instance_info', {'instance_uuids': [ID]},
                 (None, 5, ID, {}, {ID: ID}, MANY,
                  *([ID, each] for each in NO_IDS)))):
            [field] = good
            for value in bad:
                self.assertRefused(
                    field, method, host_name='a', **{field: value})
            for host in NO_HOSTS:
                self.assertRefused(
                    'host_name', method, host_name=host, **good)

    def test_missing_and_unknown_arguments_are_refused(self):
        self.assertRefused('instance_uuids', 'sync_instance_info',
                           host_name='a')
        self.assertRefused('more', 'sync_instance_info', host_name='a',
                           instance_uuids=[], more=1)

# SPDX-License-Identifier: Apache-2.0
"""Updates that Nova's services send to all schedulers."""

from oslo_utils import uuidutils

from tests.integration.nova import base
from tests.integration import processes

#: Requests that reach each of the scheduler's processes.
ROUNDS = 4


class Updates(base.TestCase):

    def setUp(self):
        super().setUp()
        [self.uuid] = base.new(1)

    def test_reported_hosts_of_instances_are_used(self):
        self.send('update_instance_info', host_name='c2-b',
                  instance_info=[self.uuid])
        self.until(('c2-b',), 'the host of the update')

        self.send('sync_instance_info', host_name='c2-b',
                  instance_uuids=[*base.new(2), self.uuid])
        self.send('delete_instance_info', host_name='c2-b',
                  instance_uuid=self.uuid)
        self.until(None, 'the removal from the host')

        self.send('sync_instance_info', host_name='c1-a',
                  instance_uuids=[self.uuid])
        self.until(('c1-a',), 'the host with the instance')

        self.send('sync_instance_info', host_name='c1-a', instance_uuids=[])
        self.until(None, 'the empty host')

    def test_reported_aggregates_are_used(self):
        aggregate = {'id': 17, 'uuid': uuidutils.generate_uuid(),
                     'name': 'fast', 'hosts': ['c1-a', 'nowhere'],
                     'metadata': {'availability_zone': 'west'}}
        self.addCleanup(self.send, 'delete_aggregate', aggregate=aggregate)

        self.send('update_aggregates', aggregates=[aggregate])
        self.until(('c1-a',), 'the zone', zone='west')
        aggregate['hosts'] = ['c1-b']
        self.send('update_aggregates', aggregates=[aggregate])
        self.until(('c1-b',), 'another host of the zone', zone='west')
        self.send('delete_aggregate', aggregate=aggregate)
        self.until(None, 'the zone to be gone', zone='west')

    def send(self, method, **arguments):
        self.assertIsNone(self.called(method, **arguments))

    def until(self, expected, description, **request):
        """Wait until all processes select these hosts.

        :param expected: the hosts; None for a refusal
        :param request: by default, a request for the host of ``self.uuid``,
            which only the updates contain
        """
        request = request or {'scheduler_hints': {'same_host': [self.uuid]}}

        def is_so():
            return all(self.place(request) == expected for _ in range(ROUNDS))

        processes.wait_until(is_so, description)

    def place(self, request):
        answer = self.select(base.new(1), None, **request)
        return base.hosts(answer['result']) if 'result' in answer else None

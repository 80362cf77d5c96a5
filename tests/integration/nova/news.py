# SPDX-License-Identifier: Apache-2.0
"""What Nova's services tell all schedulers without being asked."""

from oslo_utils import uuidutils

from tests.integration.nova import base
from tests.integration import processes

#: Requests that reach each of the scheduler's processes.
ROUNDS = 4


class News(base.TestCase):

    def setUp(self):
        super().setUp()
        [self.uuid] = base.new(1)

    def test_where_instances_are_is_heard(self):
        self.tell('update_instance_info', host_name='c2-b',
                  instance_info=[self.uuid])
        self.until(('c2-b',), 'the host that said so')

        self.tell('sync_instance_info', host_name='c2-b',
                  instance_uuids=[*base.new(2), self.uuid])
        self.tell('delete_instance_info', host_name='c2-b',
                  instance_uuid=self.uuid)
        self.until(None, 'the host to have it no more')

        self.tell('sync_instance_info', host_name='c1-a',
                  instance_uuids=[self.uuid])
        self.until(('c1-a',), 'the host that has it, among others')

        self.tell('sync_instance_info', host_name='c1-a', instance_uuids=[])
        self.until(None, 'the host to have none')

    def test_aggregates_are_heard(self):
        aggregate = {'id': 17, 'uuid': uuidutils.generate_uuid(),
                     'name': 'fast', 'hosts': ['c1-a', 'nowhere'],
                     'metadata': {'availability_zone': 'west'}}
        self.addCleanup(self.tell, 'delete_aggregate', aggregate=aggregate)

        self.tell('update_aggregates', aggregates=[aggregate])
        self.until(('c1-a',), 'the zone', zone='west')
        aggregate['hosts'] = ['c1-b']
        self.tell('update_aggregates', aggregates=[aggregate])
        self.until(('c1-b',), 'another host of the zone', zone='west')
        self.tell('delete_aggregate', aggregate=aggregate)
        self.until(None, 'the zone to be gone', zone='west')

    def tell(self, method, **arguments):
        self.assertIsNone(self.called(method, **arguments))

    def until(self, wanted, what, **request):
        """Wait until a request gets these hosts of all processes.

        :param wanted: the hosts; None if it is to be refused
        :param request: by default it is for the host of ``self.uuid``, which
            nobody knows but by what was told
        """
        request = request or {'scheduler_hints': {'same_host': [self.uuid]}}

        def is_so():
            return all(self.place(request) == wanted for _ in range(ROUNDS))

        processes.wait_until(is_so, what)

    def place(self, request):
        answer = self.select(base.new(1), None, **request)
        return base.hosts(answer['result']) if 'result' in answer else None

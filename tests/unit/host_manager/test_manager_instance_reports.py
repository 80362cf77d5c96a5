# SPDX-License-Identifier: Apache-2.0
from cellsched.host_manager import manager
from tests.unit import base


class TestInstanceReports(base.TestCase):

    def setUp(self):
        super().setUp()
        self.reports = manager.InstanceReports()

    def hosts(self, *instances):
        return list(map(self.reports.hosts(instances).get, instances))

    def test_host_has_its_reported_instances(self):
        self.reports.add('a', ['1', '2'], False)
        self.reports.add('a', ['3'], False)

        self.assertEqual(['a', 'a', 'a', None], self.hosts(*'1234'))

    def test_last_report_locates_an_instance(self):
        self.reports.add('a', ['1', '2'], False)
        self.reports.add('b', ['1'], False)

        self.assertEqual(['b', 'a'], self.hosts('1', '2'))
        self.reports.add('a', [], True)
        self.assertEqual(['b', None], self.hosts('1', '2'))

    def test_complete_list_replaces_the_instances_of_a_host(self):
        self.reports.add('a', ['1', '2'], False)
        self.reports.add('a', ['2', '3'], True)

        self.assertEqual([None, 'a', 'a'], self.hosts(*'123'))

    def test_removed_instance_is_on_no_host(self):
        self.reports.add('a', ['1'], False)

        self.reports.forget('1')
        self.reports.forget('never seen')

        self.assertEqual([None], self.hosts('1'))

    def test_oldest_instances_are_dropped_above_the_maximum(self):
        self.patch(manager, 'INSTANCES_MAX', 3)

        self.reports.add('a', '12345', False)

        self.assertEqual([None, None, 'a', 'a', 'a'], self.hosts(*'12345'))

# SPDX-License-Identifier: Apache-2.0
"""The statistics of a node, with Nova's names."""

import json
import types

from cellsched.compute import stats
from tests.unit import base


def row(servers, vm_state='active', task_state=None, project_id='project'):
    return types.SimpleNamespace(
        servers=servers, vm_state=vm_state, task_state=task_state,
        project_id=project_id)


class TestOfServers(base.TestCase):

    def test_node_without_servers_has_none_and_nothing_to_do(self):
        self.assertEqual(
            {'num_instances': 0, 'io_workload': 0}, stats.of_servers([]))

    def test_servers_are_counted_by_state_task_and_project(self):
        self.assertEqual(
            {'num_instances': 6, 'io_workload': 2,
             'num_vm_active': 4, 'num_vm_building': 2,
             'num_task_None': 3, 'num_task_spawning': 2,
             'num_task_deleting': 1, 'num_proj_one': 5, 'num_proj_two': 1},
            stats.of_servers([
                row(3, project_id='one'),
                row(2, 'building', 'spawning', project_id='one'),
                row(1, task_state='deleting', project_id='two')]))

    def test_what_keeps_disks_busy_is_workload(self):
        for vm_state, task_state, expected in (
                ('building', 'spawning', 1), ('building', None, 1),
                ('active', 'rebuilding', 1), ('active', 'resize_prep', 1),
                ('active', 'resize_migrating', 1),
                ('active', 'image_snapshot', 1),
                ('active', 'image_backup', 1), ('stopped', 'rescuing', 1),
                ('shelved', 'unshelving', 1), ('building', 'rebuilding', 2),
                ('active', None, 0), ('active', 'powering-off', 0),
                ('active', 'resize_finish', 0), ('error', None, 0)):
            self.assertEqual(
                expected,
                stats.of_servers([row(1, vm_state, task_state)])[
                    'io_workload'], (vm_state, task_state))


class TestOfImages(base.TestCase):

    def test_servers_are_counted_by_property_and_value(self):
        self.assertEqual({}, stats.of_images([]))
        self.assertEqual(
            {'image_props': {'os': {'x': 3, 'y': 1}, 'bus': {'ide': 2}}},
            stats.of_images([
                ('os', 'x', 3), ('os', 'y', 1), ('bus', 'ide', 2)]))

    def test_what_most_servers_have_is_kept_where_it_is_too_much(self):
        rows = [(f'p{number}', '\u00e9' * 255, number)
                for number in range(1, 1001)]

        said = stats.of_images(rows)

        self.assertLess(len(json.dumps(said)), 33_000)
        kept = {int(name[1:]) for name in said['image_props']}
        self.assertEqual(set(range(1001 - len(kept), 1001)), kept)
        self.assertLess(10, len(kept))

# SPDX-License-Identifier: Apache-2.0
"""Readers of traces, with files of a few servers."""

import contextlib
import math
import sqlite3

import numpy as np

from cellsched import exception
from cellsched.simulator.capacity import load
from cellsched.simulator.capacity import traces
from tests.unit import base

HUAWEI = """vmid,cpu,memory,time,type
7,1,2,0,0
8,4,8,60,0
7,1,2,100,1
99,1,1,110,1
7,2,4,120,0
"""

#: Rows of vmType, and of vm: the first server was there before, the second
#: one ended before, and the last type is on another machine.
TYPES = [('small', 0, 0.03125, 0.0625, 0.0, 0.25),
         ('large', 0, 0.5, 0.5, 0, 0), ('large', 1, 0.25, 0.25, 0, 0),
         ('huge', 1, 1, 1, 0, 0)]
SERVERS = [('a', 'small', -2.0, 1.0), ('a', 'small', -2.0, -1.0),
           ('b', 'large', 0.5, None), ('a', 'small', 0.5, 0.75),
           ('a', 'small', 0.5, 1.5), ('b', 'huge', 0.5, 1.0)]


class TraceTestCase(base.TestCase):

    def file(self, text, name='trace'):
        path = self.directory / name
        path.write_text(text, encoding='utf-8')
        return path

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_directory()

    def database(self, types=TYPES, servers=SERVERS, columns='endtime REAL'):
        path = self.directory / 'trace.sqlite'
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute(
                'CREATE TABLE vmType (vmTypeId, machineId, core REAL, '
                'memory REAL, hdd REAL, ssd REAL)')
            database.execute('CREATE TABLE vm (tenantId, vmTypeId, '
                             f'starttime REAL, {columns})')
            database.executemany(
                'INSERT INTO vmType VALUES (?, ?, ?, ?, ?, ?)', types)
            database.executemany(
                'INSERT INTO vm VALUES (?, ?, ?, ?)', servers)
            database.commit()
        return path

    def assertRefused(self, path, text, **options):
        with self.assertRaisesRegex(exception.InvalidField, text):
            traces.read(path, **options)


class TestHuawei(TraceTestCase):

    def test_deletion_ends_the_server_of_its_number(self):
        trace = traces.read(self.file(HUAWEI))

        self.assertEqual([0, 60, 120], trace.at.tolist())
        self.assertEqual([100, math.inf, math.inf], trace.lifetimes.tolist())
        self.assertEqual(
            [(1, 2048, 0), (4, 8192, 0), (2, 4096, 0)],
            [trace.sizes[each] for each in trace.flavors])

    def test_columns_may_be_in_any_order(self):
        trace = traces.read(self.file(
            'time,type,cpu,memory,vmid\n5,0,1,2,3\n'))

        self.assertEqual(([5], [(1, 2048, 0)]),
                         (trace.at.tolist(), trace.sizes))

    def test_wrong_values_are_named(self):
        for row, text in (
                ('x,1,1,0,0', r'line 2\.vmid.*whole'),
                ('1,0,1,0,0', r'line 2\.cpu.*at least 1'),
                ('1,1,nan,0,0', r'line 2\.memory'),
                ('1,1,1,-1,0', r'line 2\.time'),
                ('1,1,1,0,2', r'line 2\.type.*0 for a creation'),
                ('1,1,1,0', r'line 2\.type'),
                ('', 'at least one server')):
            self.assertRefused(self.file(
                'vmid,cpu,memory,time,type\n' + row), text)

    def test_wrong_files_are_named(self):
        for path, text in (
                (self.file('vmid,cpu\n', 'short'), 'line 1.*memory'),
                (self.file(''), 'line 1.*vmid'),
                (self.directory / 'absent', 'be read')):
            self.assertRefused(path, text)
        path = self.file('')
        path.write_bytes(b'\xff\xfe')
        self.assertRefused(path, 'UTF-8')


class TestAzurePacking(TraceTestCase):

    def test_servers_have_sizes_of_a_machine(self):
        trace = traces.read(self.database())

        self.assertEqual(
            [(0, 86400, (2, 16384, 1000)), (43200, 21600, (2, 16384, 1000)),
             (43200, 86400, (2, 16384, 1000)),
             (43200, math.inf, (32, 131072, 0))],
            [(at, life, trace.sizes[place]) for at, life, place in zip(
                trace.at, trace.lifetimes, trace.flavors)])

    def test_machine_is_of_a_kind_and_a_size(self):
        trace = traces.read(self.database(), machine={
            'id': 1, 'vcpus': 8, 'memory_mb': 800, 'disk_gb': 0})

        self.assertEqual([(2, 200, 0), (8, 800, 0)], sorted(
            trace.sizes[place] for place in trace.flavors))

    def test_wrong_databases_are_named(self):
        self.assertRefused(
            self.database(columns='finish REAL'), r'vm\.endtime')
        (self.directory / 'trace.sqlite').unlink()
        path = self.database()
        self.assertRefused(
            path, r'vmType\.machineId.*machine 7; expected one of 0, 1',
            machine={'id': 7})
        self.assertRefused(self.file(HUAWEI), 'SQLite', form='azure-packing')

    def test_times_are_numbers(self):
        self.assertRefused(
            self.database(servers=[('a', 'small', 'now', 1.0)]), 'days')

    def test_database_without_servers_is_named(self):
        self.assertRefused(self.database(servers=[]), 'at least one server')


class TestLoad(TraceTestCase):

    def of(self, path, hours=24, **section):
        return load.of({'trace': str(path), **section},
                       np.random.default_rng(1), hours, 1)

    def test_servers_of_same_time_project_and_type_are_a_request(self):
        arrivals = [*self.of(self.database()).arrivals()]

        self.assertEqual(
            [(0, 'project-0', 2, (86400,)), (43200, 'project-0', 2,
                                             (21600, 86400)),
             (43200, 'project-1', 32, (math.inf,))],
            [(each.at, each.project, each.flavor.vcpus, each.lifetimes)
             for each in arrivals])

    def test_requests_of_huawei_have_a_single_server(self):
        path = self.file('vmid,cpu,memory,time,type\n1,1,1,0,0\n2,1,1,0,0\n')

        self.assertEqual([1, 1], [
            len(each.lifetimes) for each in self.of(path).arrivals()])

    def test_load_ends_with_the_simulation(self):
        made = self.of(self.file(HUAWEI), hours=0.02)

        self.assertEqual([0, 60], [each.at for each in made.arrivals()])
        self.assertEqual([0.5, 0.5, 0], made.shares.tolist())

# SPDX-License-Identifier: Apache-2.0
"""Schedulers give each dedicated CPU, page and device once."""

import json
import uuid

from cellsched import context
from cellsched import exception
from cellsched.hardware import devices
from cellsched.hardware import documents
from cellsched.hardware import units
from cellsched import migrations
from cellsched import plugins
from cellsched.standalone import deployment
from cellsched.testing import builders
from cellsched.wiring import services
from tests.functional import base
from tests.functional import hardware
from tests.unit import racing

DEDICATED = {'extra_specs': {'hw:cpu_policy': 'dedicated'}}

#: Requests for one part, and the number of these on two hosts.
REQUESTS = {
    'cpu': (DEDICATED, 8),
    'page': ({'memory_mb': 1024, 'extra_specs': {
        'hw:mem_page_size': '1GB'}}, 8),
    'device': ({'pci_requests': documents.written_requests([
        devices.DeviceRequest(1, ({'vendor_id': '8086'},), 'nic')])}, 4)}


class SchedulerCase(base.TestCase):

    def make_driver(self):
        """Return the driver of one more scheduler on the same databases."""
        parts = services.Components(self.world.conf('api'))
        self.addCleanup(parts.close)
        return plugins.load(
            plugins.DRIVERS, 'filter_scheduler')(parts.conf, parts)

    def select(self, driver, uuids, **fields):
        """Return the hosts for servers; empty if not all of them fit."""
        try:
            return [first.service_host for first, *_ in (
                driver.select_destinations(
                    context.admin(), builders.request(
                        num_instances=len(uuids), instance_uuid=uuids[0],
                        **fields), uuids, 0))]
        except exception.NoValidHost:
            return []

    @property
    def claims(self):
        return self.world.api.parts.claims

    def named(self, consumer):
        """Return the parts that the claims of a consumer name."""
        [claim] = self.claims.claims_of([consumer])[consumer]
        return units.named(claim.resources)

    def used_up(self, name):
        """Return whether all parts with this in their names are claimed."""
        usages = [(usage.used.get(each, 0), capacity)
                  for usage in self.claims.usages().usages
                  for each, capacity in usage.capacity.items()
                  if name in each]
        return bool(usages) and all(
            used == capacity for used, capacity in usages)


class TestRaces(SchedulerCase):

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': [deployment.DeployedHost(
            name, behaviour={'hardware': json.dumps(hardware.HARDWARE)})
            for name in ('a1', 'a2')]}, **hardware.OPTIONS)

    def test_each_part_is_given_once(self):
        drivers = [self.make_driver() for _ in range(2)]

        def select_until_refused(driver, fields):
            found = []
            while self.select(driver, [new := str(uuid.uuid4())], **fields):
                found.append(new)
            return found

        for part, (fields, count) in REQUESTS.items():
            winners = sum(racing.race(*(
                lambda driver=driver: select_until_refused(driver, fields)
                for driver in drivers * 2)), [])

            self.assertEqual(count, len(winners), part)
            self.claims.release(winners)

    def test_resize_on_the_same_host_holds_old_and_new_cpus(self):
        driver, [server] = self.make_driver(), [str(uuid.uuid4())]
        self.assertEqual(['a1'], self.select(
            driver, [server], ignore_hosts=['a2'], **DEDICATED))
        old = self.named(server)

        self.assertEqual(['a1'], self.select(
            driver, [server], ignore_hosts=['a2'], vcpus=2, **DEDICATED))

        new = self.named(migrations.consumer(server))
        self.assertEqual(old, self.named(server))
        self.assertEqual([1, 2], [sum(
            'PCPU' in name for name in each) for each in (old, new)])
        self.assertEqual(set(), {
            name for name in old.keys() & new.keys() if 'PCPU' in name})

        self.claims.transfer(migrations.consumer(server), server)
        self.assertEqual(new, self.named(server))


class TestManyServers(SchedulerCase):
    """Three hosts have dedicated CPUs and pages for a hundred servers."""

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': [deployment.DeployedHost(
            name, memory_mb=2 ** 17, disk_gb=1000, behaviour={
                'hardware': json.dumps({'cells': [
                    {'id': cell, 'memory_mb': 2 ** 16, 'cpus': 300 + cell,
                     'dedicated': f'{100 * cell}-{100 * cell + cpus - 1}',
                     'pages': [{'size_kb': size_kb, 'total': total}
                               for size_kb, total in (
                                   (4, 2 ** 22), *pages)]}
                    for cell in (0, 1)]})})
            for name, cpus, pages in (
                # One server of each cell has the page of 1 GB.
                ('a1', 32, [(2048, 15 * 512), (2 ** 20, 1)]),
                ('a2', 34, [(2048, 17 * 512)]),
                ('a3', 34, [(2048, 17 * 512)]))]}, **hardware.OPTIONS)

    def test_request_for_many_servers_fills_the_hosts(self):
        driver = self.make_driver()
        for fields, full in (
                ({'memory_mb': 512, **DEDICATED}, ['PCPU']),
                ({'memory_mb': 1024, 'extra_specs': {
                    'hw:cpu_policy': 'dedicated',
                    'hw:mem_page_size': 'large'}},
                 ['PCPU', 'PAGES_2048KB', 'PAGES_1048576KB'])):
            uuids = [str(uuid.uuid4()) for _ in range(101)]

            self.assertEqual([], self.select(driver, uuids, vcpus=2, **fields))
            self.assertEqual({}, self.claims.claims_of(uuids))

            hosts = self.select(driver, uuids[1:], vcpus=2, **fields)
            self.assertEqual([32, 34, 34], [
                hosts.count(name) for name in ('a1', 'a2', 'a3')])
            self.assertEqual([True] * len(full), [*map(self.used_up, full)])
            self.claims.release(uuids)

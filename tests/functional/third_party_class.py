# SPDX-License-Identifier: Apache-2.0
"""Stories with the plug-ins of ``examples/third_party_class``.

They need the package to be installed, so an integration test runs them, in a
process of their own.
"""

import json
import uuid

from cellsched import exception
from cellsched.rpc import scheduler
from cellsched.standalone import deployment
from cellsched.testing import builders
from cellsched.wiring import services
from tests.functional import base

PAGES = 'CUSTOM_HUGE_PAGES_MB'


def host(name, pages_mb=4096, celsius=20):
    return deployment.DeployedHost(name, behaviour={
        'inventories': {PAGES: pages_mb} if pages_mb else {},
        'metrics': {'inlet.celsius': celsius} if celsius else {}})


class TestCase(base.TestCase):

    def flavor(self, name, wanted_mb):
        flavors = self.world.api.flavors
        flavors.create(base.ADMIN, name, 1, 512)
        flavors.set_extra_specs(
            base.ADMIN, name, {f'resources:{PAGES}': str(wanted_mb)})

    def claimed(self, uuid):
        [claim] = self.world.api.parts.claims.claims_of([uuid])[uuid]
        return claim.resources[PAGES]


class TestClass(TestCase):

    def test_table_claim_and_answer_have_whole_pages(self):
        self.deploy({'cell1': [host('a1')], 'cell2': [host('b1', 0)]})
        self.flavor('paged', 1500)

        [first, second] = [self.built(flavor='paged')[0] for _ in range(2)]

        # Twice 1500 MB would leave room for 1000 more.
        for server in first, second:
            self.assertEqual(('ACTIVE', 'a1', 2048), (
                server.status, server.host, self.claimed(server.uuid)))
        self.flavor('less', 1000)
        [third] = self.built(flavor='less')
        self.assertEqual('ERROR', third.status)
        self.assertIn('2 lack huge pages (by 1024 MB)',
                      third.reason)

        self.delete(first.uuid)
        self.assertLeftNothing(first.uuid)
        [third] = self.built(flavor='less')
        self.assertEqual(('ACTIVE', 1024),
                         (third.status, self.claimed(third.uuid)))

    def test_answer_to_a_foreign_caller_has_whole_pages(self):
        self.deploy({'cell1': [host('a1')]})
        client = scheduler.SchedulerAPI(
            self.world.api.parts.transports.get(), timeout_s=base.TIMEOUT_S)
        request = builders.request(
            instance_uuid=str(uuid.uuid4()),
            extra_specs={f'resources1:{PAGES}': '1'})

        [[found]] = client.select_destinations(
            base.USER, request, [request.instance_uuid],
            return_alternates=False)

        given = json.loads(found.allocation_request)['allocations']
        self.assertEqual(
            [{'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1, PAGES: 1024}],
            [each['resources'] for each in given.values()])

    def test_audit_has_no_finding_about_used_resources(self):
        self.deploy({'cell1': [host('a1')]})
        self.flavor('paged', 1500)
        self.built(flavor='paged')

        auditor = services.auditor(self.world.api.parts)

        self.soon(lambda: self.assertEqual(
            [], auditor.run(settle_s=0).remaining))


class TestColumn(TestCase):

    def test_filter_reads_the_reports_of_agents(self):
        self.deploy({'cell1': [host('a1', celsius=36.5)], 'cell2': [
            host('b1', celsius=30), host('b2', celsius=None)]},
            filter_scheduler={'enabled_filters': (
                'ComputeFilter', 'CoolHostFilter')})

        self.assertEqual('b1', self.built()[0].host)

    def test_nearest_miss_is_named(self):
        self.deploy({'cell1': [host('a1', celsius=36.5)]},
                    filter_scheduler={'enabled_filters': (
                        'ComputeFilter', 'CoolHostFilter')})
        client = scheduler.SchedulerAPI(
            self.world.api.parts.transports.get(), timeout_s=base.TIMEOUT_S)
        request = builders.request()

        failure = self.assertRaises(
            exception.NoValidHost, client.select_destinations, base.USER,
            request, [request.instance_uuid], return_alternates=False)

        self.assertIn('the only host takes in hot air (by 1.5 °C)',
                      str(failure))

# SPDX-License-Identifier: Apache-2.0
"""Requests of callers of every release, as they send them.

Each file in ``payloads`` says how it was made, what is sent to which version,
and what is expected: dicts, as they are; selections with their alternates, by
their hosts; or an error and what it names. Where a request asks for what no
stage reads, ``ignoring`` is what is expected of a scheduler that ignores it.
"""

import json
import pathlib

import oslo_messaging
from testtools import content

from cellsched import exception
from cellsched.objects import requests
from cellsched.rpc import scheduler
from cellsched.rpc import serializer
from cellsched.standalone import deployment
from tests.functional import base

PAYLOADS = pathlib.Path(__file__).parent / 'payloads'

FILTERS = (
    'RetryFilter', 'AvailabilityZoneFilter', 'ComputeFilter', 'CellFilter',
    'ComputeCapabilitiesFilter', 'ImagePropertiesFilter', 'JsonFilter',
    'RamFilter', 'CoreFilter', 'DiskFilter', 'SameHostFilter',
    'DifferentHostFilter',
    'ServerGroupAntiAffinityFilter', 'ServerGroupAffinityFilter')

SELECTION = {
    'compute_node_uuid', 'service_host', 'nodename', 'cell_uuid', 'limits',
    'allocation_request', 'allocation_request_version', 'availability_zone'}


#: Memory of hosts; those with the most are chosen if a request leaves it open.
MEMORY_MB = {'a1': 32768, 'a2': 16384, 'b1': 32768, 'b2': 16384}

#: What ports may ask hosts for.
LINKS = {'link': {
    'inventories': {'NET_BW_EGR_KILOBIT_PER_SEC': 10_000},
    'traits': ['CUSTOM_PHYSNET1']}}


class PayloadCase(base.TestCase):

    #: Of the scheduler.
    options = {}
    #: What is looked at in a file.
    expected = 'expected'

    def setUp(self):
        super().setUp()
        hosts = [deployment.DeployedHost(
            host, vcpus=64, memory_mb=memory_mb,
            availability_zone='az1' if host.startswith('a') else None,
            providers=LINKS)
            for host, memory_mb in MEMORY_MB.items()]
        self.deploy(
            {'cell1': hosts[:2], 'cell2': hosts[2:]},
            filter_scheduler={'enabled_filters': FILTERS},
            scheduler=self.options)
        self.scheduler = scheduler.SchedulerAPI(
            self.world.api.parts.transports.get(), timeout_s=300)

    def call(self, sent):
        """Return what a caller gets, as it travels."""
        answer = self.scheduler.call(
            base.USER, 'select_destinations', sent['version'], **sent['args'])
        return serializer.Serializer().serialize_entity(None, answer)

    def assertSelections(self, hosts, answer):
        for each in (each for one in answer for each in one):
            self.assertEqual('Selection', each['nova_object.name'])
            self.assertEqual('nova', each['nova_object.namespace'])
            self.assertEqual(requests.Selection.VERSION,
                             each['nova_object.version'])
            said = each['nova_object.data']
            self.assertEqual(SELECTION, set(said))
            self.assertEqual('SchedulerLimits',
                             said['limits']['nova_object.name'])
            self.assertEqual(
                {'numa_topology': None, 'vcpu': 64, 'disk_gb': 200,
                 'memory_mb': MEMORY_MB[said['service_host']]},
                said['limits']['nova_object.data'])
            self.assertIsInstance(json.loads(said['allocation_request']), dict)
        self.assertEqual(hosts, [
            [each['nova_object.data']['service_host'] for each in one]
            for one in answer])

    def assertAnswered(self, sent):
        expected = sent[self.expected]
        if 'error' in expected:
            error = self.assertRaises(
                (oslo_messaging.RemoteError, exception.NoValidHost),
                self.call, sent)
            self.assertEqual(expected['error'], getattr(
                error, 'exc_type', exception.NoValidHost.__name__))
            for name in expected['names']:
                self.assertIn(name, str(error))
        elif 'dicts' in expected:
            self.assertEqual(expected['dicts'], self.call(sent))
        else:
            self.assertSelections(expected['selections'], self.call(sent))
        self.assertClaimed(sent)

    def assertClaimed(self, sent):
        """Only who names instances has claims for them."""
        uuids = sent['args'].get('instance_uuids') or []
        claims = self.world.api.parts.claims
        if 'error' in sent[self.expected]:
            uuids = []
        self.assertEqual(set(uuids), set(claims.claims_of(uuids)))
        self.assertEqual(bool(uuids), bool(self._claimed()))
        claims.release(uuids)

    def answer_all(self):
        """Send all that something is expected of; return the versions."""
        versions = set()
        for path in sorted(PAYLOADS.glob('*.json')):
            self.addDetail('payload', content.text_content(path.name))
            sent = json.loads(path.read_text())
            if self.expected in sent:
                versions.add(sent['version'])
                self.assertAnswered(sent)
        self.assertNotIn('Traceback', self.logs.output)
        return versions


class TestPayloads(PayloadCase):

    def test_callers_of_each_release_get_their_format(self):
        self.assertLessEqual(
            {'4.0', '4.2', '4.3', '4.4', '4.5'}, self.answer_all())


class TestIgnoring(PayloadCase):

    options = {'unmet_demands': 'ignore'}
    expected = 'ignoring'

    def test_unsupported_requirements_are_skipped(self):
        self.assertEqual({'4.5'}, self.answer_all())

# SPDX-License-Identifier: Apache-2.0
"""Providers are read if their generation changed."""

import json
import types
import unittest

from keystoneauth1 import exceptions as ks_exceptions

from cellsched_nova import placement

HOST, CHILD, POOL, OTHER = (
    f'00000000-0000-4000-8000-00000000000{number}' for number in range(4))
CONTEXT = types.SimpleNamespace(global_id='req-1')


class Answer:

    def __init__(self, status_code, body=None):
        self.status_code = status_code
        self._body = body

    def json(self):
        return self._body

    @property
    def text(self):
        return json.dumps(self._body)


class Placement:
    """A fake of Placement that counts requests."""

    def __init__(self):
        self.providers = {}
        self.summarised = []
        self.failure = None
        self.asked = []

    def put(self, uuid, generation, total=8, root=None, traits=(),
            resource='VCPU'):
        self.providers[uuid] = {
            'generation': generation, 'root': root or uuid,
            'inventories': {resource: {
                'total': total, 'reserved': 1, 'allocation_ratio': 2.0,
                'min_unit': 1, 'max_unit': total, 'step_size': 1}},
            'usages': {resource: 3}, 'traits': list(traits)}

    def get(self, path, version=None, global_request_id=None):
        self.asked.append(path)
        if self.failure is not None:
            raise self.failure
        if path.startswith('/allocation_candidates'):
            return Answer(200, {'provider_summaries': {
                uuid: {'resources': {'VCPU': {'capacity': 7, 'used': 1}},
                       'traits': []} for uuid in self.summarised}})
        if path == '/resource_providers':
            return Answer(200, {'resource_providers': [
                {'uuid': uuid, 'generation': each['generation'],
                 'root_provider_uuid': each['root']}
                for uuid, each in self.providers.items()]})
        _, _, uuid, what = path.split('/')
        if uuid not in self.providers:
            return Answer(404)
        return Answer(200, {
            'resource_provider_generation':
            self.providers[uuid]['generation'],
            what: self.providers[uuid][what]})


class TestRead(unittest.TestCase):

    def read(self, status_code, **named):
        def get(path, version=None, global_request_id=None):
            answer = Answer(status_code)
            answer.json = lambda: json.loads('{"half')
            return answer

        return placement.read(
            types.SimpleNamespace(get=get), CONTEXT, '/some?a=1', **named)

    def test_rejected_request_has_an_error_of_its_own(self):
        for status_code in 400, 401, 404:
            self.assertRaisesRegex(
                placement.PlacementRefused, f'/some .* {status_code}$',
                self.read, status_code)
        with self.assertRaises(placement.PlacementUnavailable) as caught:
            self.read(503)
        self.assertNotIsInstance(
            caught.exception, placement.PlacementRefused)

    def test_truncated_answer_is_an_error(self):
        self.assertRaisesRegex(
            placement.PlacementUnavailable, '/some is not JSON',
            self.read, 200)

    def test_status_404_gives_the_default(self):
        self.assertEqual({}, self.read(404, missing={}))


class TestProviderReader(unittest.TestCase):

    def setUp(self):
        self.placement = Placement()
        self.reader = placement.ProviderReader(self.placement)

    def read(self, *nodes, whole=True):
        self.placement.asked.clear()
        return dict(self.reader.changes(CONTEXT, nodes or [HOST], whole))

    def test_capacity_is_the_unreserved_total_times_the_ratio(self):
        self.placement.put(HOST, 1, traits=['HW_CPU_X86_AVX'])

        facts = self.read()[HOST]

        self.assertEqual({'VCPU': 14}, facts.capacity)
        self.assertEqual({'VCPU': 3}, facts.used)
        self.assertEqual({'VCPU': (1, 8, 1)}, facts.units)
        self.assertEqual({'HW_CPU_X86_AVX'}, facts.traits)

    def test_unchanged_provider_is_not_read_again(self):
        self.placement.put(HOST, 1)
        self.read()

        self.assertEqual({}, self.read())
        self.assertEqual(['/resource_providers'], self.placement.asked)

    def test_changed_provider_is_read(self):
        self.placement.put(HOST, 1)
        self.read()
        self.placement.put(HOST, 2, total=16)

        self.assertEqual({'VCPU': 30}, self.read()[HOST].capacity)

    def test_only_the_usage_of_a_changed_provider_is_read_at_first(self):
        self.placement.put(HOST, 1, traits=['A'])
        self.read()
        self.placement.put(HOST, 2, total=16)
        self.placement.providers[HOST]['usages'] = {'VCPU': 5}

        facts = self.read(whole=False)[HOST]

        self.assertEqual(
            ['/resource_providers', f'/resource_providers/{HOST}/usages'],
            self.placement.asked)
        self.assertEqual(
            ({'VCPU': 5}, {'VCPU': 14}, {'A'}),
            (facts.used, facts.capacity, facts.traits))
        # With the same generation, a whole read reads the rest.
        self.assertEqual({'VCPU': 30}, self.read()[HOST].capacity)
        self.assertEqual({}, self.read())

    def test_rest_of_a_changed_provider_is_read_after_some_seconds(self):
        self.addCleanup(setattr, placement, '_WHOLE_S', placement._WHOLE_S)
        self.placement.put(HOST, 1)
        self.read()
        self.placement.put(HOST, 2, total=16)
        self.read(whole=False)
        self.assertEqual({}, self.read(whole=False))
        placement._WHOLE_S = 0

        self.assertEqual(
            {'VCPU': 30}, self.read(whole=False)[HOST].capacity)
        self.assertEqual({}, self.read(whole=False))

    def test_forgotten_provider_is_read_as_a_whole(self):
        self.placement.put(HOST, 1)
        self.read()
        self.placement.put(HOST, 2, total=16)
        self.reader.forget([HOST])

        self.assertEqual(
            {'VCPU': 30}, self.read(whole=False)[HOST].capacity)

    def outdated(self):
        self.placement.asked.clear()
        return dict(self.reader.outdated(CONTEXT))

    def test_only_the_usage_of_an_outdated_provider_is_read(self):
        for uuid in HOST, OTHER:
            self.placement.put(uuid, 1)
        self.read(HOST, OTHER)
        for uuid in HOST, OTHER:
            self.placement.put(uuid, 2, total=16)
        self.reader.recount([HOST])

        found = self.outdated()

        self.assertEqual({HOST: {'VCPU': 14}}, {
            uuid: facts.capacity for uuid, facts in found.items()})
        self.assertEqual(
            [f'/resource_providers/{HOST}/usages'], self.placement.asked)
        self.assertEqual({}, self.outdated())
        # The read of the usage found the generation.
        self.assertEqual([OTHER], [*self.read(HOST, OTHER, whole=False)])
        self.assertEqual(
            {'VCPU': 30}, self.read(HOST, OTHER)[HOST].capacity)

    def test_forgotten_provider_is_outdated_as_a_whole(self):
        self.placement.put(HOST, 1)
        self.read()
        self.placement.put(HOST, 2, total=16)
        self.reader.forget([HOST])

        self.assertEqual({'VCPU': 30}, self.outdated()[HOST].capacity)
        self.assertEqual({}, self.read())

    def test_outdated_child_provider_is_read_with_the_changes(self):
        self.placement.put(HOST, 1)
        self.placement.put(CHILD, 1, root=HOST, resource='VGPU')
        self.read()
        self.placement.put(CHILD, 1, root=HOST, resource='PGPU')
        self.reader.recount([CHILD])

        self.assertEqual({}, self.outdated())
        self.read()
        self.assertEqual({'PGPU'}, self.reader.non_host_classes)

    def test_provider_is_read_again_after_a_failed_read(self):
        self.placement.put(HOST, 1)
        self.read()
        self.reader.recount([HOST])
        self.placement.failure = ks_exceptions.ConnectFailure('gone')
        self.assertRaises(placement.PlacementUnavailable, self.outdated)
        self.placement.failure = None

        self.assertEqual([HOST], [*self.read()])

    def test_deleted_provider_has_no_capacity(self):
        self.placement.put(HOST, 1)
        self.read()
        del self.placement.providers[HOST]

        self.assertEqual({HOST: placement.NOTHING}, self.read())
        self.assertEqual({}, self.read())

    def test_forgotten_provider_is_read_again(self):
        self.placement.put(HOST, 1)
        self.read()
        self.reader.forget([HOST])

        self.assertEqual([HOST], list(self.read()))

    def test_provider_of_a_new_host_is_read(self):
        self.placement.put(HOST, 1)

        self.assertEqual({}, self.read(OTHER))
        self.assertEqual([HOST], list(self.read(HOST)))

    def test_claim_of_this_process_needs_no_read(self):
        self.placement.put(HOST, 1)
        self.read()
        self.reader.claimed(HOST, {'VCPU': 2})
        self.placement.put(HOST, 2)

        self.assertEqual({}, self.read())
        self.assertEqual({'VCPU': 5}, self.reader.facts(HOST).used)

    def test_host_with_writes_of_other_processes_is_read(self):
        self.placement.put(HOST, 1)
        self.read()
        self.reader.claimed(HOST, {'VCPU': 2})
        self.placement.put(HOST, 3)

        self.assertEqual({'VCPU': 3}, self.read()[HOST].used)

    def test_claim_during_a_read_is_read_again(self):
        self.placement.put(HOST, 1)
        changes = self.reader.changes(CONTEXT, [HOST])
        next(changes)
        self.reader.claimed(HOST, {'VCPU': 2})
        list(changes)

        self.assertEqual([HOST], list(self.read()))

    def test_provider_without_a_host_is_read_once(self):
        self.placement.put(OTHER, 1)
        self.read()

        self.assertEqual({}, self.read())
        self.assertEqual(['/resource_providers'], self.placement.asked)

    def test_many_providers_are_read_in_parallel(self):
        uuids = [f'20000000-0000-4000-8000-0000000000{number}'
                 for number in range(10, 40)]
        for uuid in uuids:
            self.placement.put(uuid, 1)

        self.assertEqual(uuids, list(self.read(*uuids)))

    def test_very_many_providers_are_summarised_first(self):
        uuids = [f'20000000-0000-4000-8000-000000000{number}'
                 for number in range(100, 400)]
        for uuid in uuids:
            self.placement.put(uuid, 1)
        self.placement.summarised = uuids[1:]

        first = self.read(*uuids)

        self.assertEqual(set(uuids), set(first))
        self.assertEqual({'VCPU': 7}, first[uuids[1]].capacity)
        self.assertEqual({'VCPU': 14}, first[uuids[0]].capacity)
        completed = set()
        while more := self.read(*uuids):
            for path in self.placement.asked[1:]:
                self.assertTrue(path.endswith('/inventories'), path)
            self.assertLess(len(more), 50)
            completed.update(more)
        self.assertEqual(set(uuids[1:]), completed)
        # The facts of the summary, with bounds.
        facts = self.reader.facts(uuids[1])
        self.assertEqual(({'VCPU': 1}, {'VCPU': (1, 8, 1)}),
                         (facts.used, facts.units))

    def test_provider_changed_since_a_summary_is_read_once(self):
        uuids = [f'20000000-0000-4000-8000-000000000{number}'
                 for number in range(100, 300)]
        for uuid in uuids:
            self.placement.put(uuid, 1)
        self.placement.summarised = uuids
        self.read(*uuids)
        for uuid in uuids[:100]:
            self.placement.put(uuid, 2)

        self.read(*uuids)

        asked = list(self.placement.asked)
        while self.read(*uuids):
            asked += self.placement.asked
        for uuid in uuids:
            self.assertEqual(1, asked.count(
                f'/resource_providers/{uuid}/inventories'))

    def test_providers_with_capacity_are_returned_with_usage(self):
        self.placement.summarised = [HOST, OTHER]

        self.assertEqual(
            {HOST: {'VCPU': 1}, OTHER: {'VCPU': 1}}, self.reader.with_capacity(
                CONTEXT, {'VCPU': 2, 'MEMORY_MB': 512}, 50))

        [path] = self.placement.asked
        self.assertEqual(
            '/allocation_candidates?'
            'resources=MEMORY_MB%3A512%2CVCPU%3A2&limit=50', path)

    def test_request_without_resources_reads_no_providers(self):
        self.assertEqual({}, self.reader.with_capacity(CONTEXT, {}, 50))
        self.assertEqual([], self.placement.asked)

    def test_provider_with_lower_usage_than_known_is_overrated(self):
        for uuid in (HOST, OTHER):
            self.placement.put(uuid, 1)
        self.read(HOST, OTHER)

        self.assertEqual([HOST], self.reader.with_lower_usage({
            HOST: {'VCPU': 2}, OTHER: {'VCPU': 3, 'MEMORY_MB': 512},
            POOL: {'VCPU': 0}}))

    def test_forgotten_provider_counts_as_overrated(self):
        self.placement.put(HOST, 1)
        self.read()
        self.reader.forget([HOST])
        taken = {HOST: {'VCPU': 3}}

        self.assertEqual([HOST], self.reader.with_lower_usage(taken))
        self.read()
        self.assertEqual([], self.reader.with_lower_usage(taken))

    def test_failed_connection_is_an_error(self):
        self.placement.failure = ks_exceptions.ConnectFailure('gone')

        with self.assertRaisesRegex(placement.PlacementUnavailable, 'gone'):
            self.reader.with_capacity(CONTEXT, {'VCPU': 1}, 50)
        with self.assertRaisesRegex(placement.PlacementUnavailable, 'gone'):
            self.read()

    def test_classes_of_child_and_sharing_providers_are_known(self):
        self.placement.put(HOST, 1)
        self.placement.put(CHILD, 1, root=HOST, resource='VGPU')
        self.placement.put(POOL, 1, traits=['MISC_SHARES_VIA_AGGREGATE'],
                           resource='DISK_GB')
        self.placement.put(OTHER, 1, resource='CUSTOM_IRON')

        self.read()

        self.assertEqual({'VGPU', 'DISK_GB'}, self.reader.non_host_classes)

    def test_truncated_list_is_an_error(self):
        self.placement.put(HOST, 1)
        self.placement.put(OTHER, 1)
        whole = self.placement.get('/resource_providers').text
        for length in range(1, len(whole) - 1):
            answer = types.SimpleNamespace(
                status_code=200, text=whole[:length])
            self.placement.get = lambda *args, answer=answer, **named: answer

            with self.assertRaisesRegex(
                    placement.PlacementUnavailable, 'is not JSON'):
                self.read()

    def test_answer_without_json_is_an_error(self):
        self.placement.get = lambda *args, **named: Answer(503)

        self.assertRaisesRegex(
            placement.PlacementUnavailable, '/resource_providers .* 503',
            self.read)

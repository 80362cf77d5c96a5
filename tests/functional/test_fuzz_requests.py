# SPDX-License-Identifier: Apache-2.0
"""Requests of every shape, and of none, are answered or refused clearly."""

import copy

import hypothesis
from hypothesis import strategies as st
import oslo_messaging

from cellsched import exception
from cellsched.rpc import scheduler
from cellsched.standalone import deployment
from cellsched.testing import builders
from tests.functional import base
from tests.functional import fuzzing
from tests.functional import hostile
from tests.functional import test_hostile_requests

ANSWERS = (exception.DeadlineExceeded, exception.InvalidField,
           exception.NoValidHost)

#: What is refused by errors of other libraries.
REFUSALS = ('IncompatibleObjectVersion', 'NoSuchMethod', 'UnsupportedVersion')

VERSIONS = st.sampled_from(
    ['4.5', '4.5', '4.5', '4.0', '4.3', '4.4', '4.6', '99.0', 'x', '', '4'])

SIZES = ('vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb', 'swap')

GOOD_ID = '00000000-0000-4000-8000-00000000600d'

settings = hypothesis.settings(
    derandomize=True, database=None,
    suppress_health_check=list(hypothesis.HealthCheck))


class TestFuzz(base.TestCase):

    def setUp(self):
        super().setUp()
        # What is chosen for those who claim nothing counts for a while.
        room = {'vcpus': 10 ** 6, 'memory_mb': 10 ** 8, 'disk_gb': 10 ** 7}
        self.deploy(
            {'cell1': [deployment.DeployedHost(
                'hosta', availability_zone='moon', **room)],
             'cell2': [deployment.DeployedHost('hostb', **room)]},
            filter_scheduler={
                'enabled_filters': test_hostile_requests.FILTERS,
                'max_io_ops_per_host': 10 ** 6,
                'max_instances_per_host': 10 ** 6})
        parts = self.world.api.parts
        self.claims, self.transport = parts.claims, parts.transports.get()

    def send(self, arguments, version='4.5', context=None):
        """Send what is given as it is."""
        return oslo_messaging.get_rpc_client(
            self.transport, oslo_messaging.Target(
                topic=scheduler.TOPIC, version=version), timeout=300).call(
            {} if context is None else context, 'select_destinations',
            **arguments)

    def check(self, arguments, version='4.5', context=None):
        """Make sure that a request is answered, or refused and forgotten."""
        before = len(self.logs.output)
        try:
            answer = self.send(arguments, version, context)
        except ANSWERS as exc:
            hypothesis.event(type(exc).__name__)
            self.assertRefused(exc.format_message())
        except oslo_messaging.RemoteError as exc:
            hypothesis.event(exc.exc_type)
            self.assertIn(exc.exc_type, REFUSALS)
            self.assertNoClaims()
        else:
            hypothesis.event('answered')
            self.assertAnswers(answer, arguments)
        self.assertQuiet(self.logs.output[before:])
        self.assertServes()

    def assertAnswers(self, answer, arguments):
        flavor = arguments.get('spec_obj', {}).get('nova_object.data', {}).get(
            'flavor', {}).get('nova_object.data', {})
        for name in SIZES:
            # None is none of it.
            self.assertGreaterEqual(int(flavor.get(name) or 0), 0)
        uuids = arguments.get('instance_uuids')
        self.assertGreater(len(answer), 0)
        if arguments.get('return_objects'):
            chosen = [first['nova_object.data']['service_host']
                      for first, *_ in answer]
        else:
            chosen = [each['host'] for each in answer]
            self.assertEqual([{'host', 'nodename', 'limits'}],
                             [*{frozenset(each) for each in answer}])
        self.assertEqual(set(), {*chosen} - {'hosta', 'hostb'})
        if uuids is None:
            self.assertNoClaims()
        else:
            self.assertEqual(len(uuids), len(answer))
            self.assertEqual({*uuids}, {*self.claims.claims_of(uuids)})
            self.claims.release(uuids)

    def assertRefused(self, text):
        self.assertTrue(text.isprintable(), ascii(text))
        self.assertLess(len(text), 1000)
        self.assertNoClaims()

    def assertNoClaims(self):
        self.assertEqual({}, self._claimed())

    def assertQuiet(self, logged):
        for bad in ('Traceback', 'ERROR', 'sqlite:///', 'is at fault'):
            self.assertNotIn(bad, logged)
        for line in logged.splitlines():
            self.assertTrue(line.isprintable(), ascii(line[:200]))
            self.assertLess(len(line), 2000)
            self.assertFalse(line.startswith('INFO root'), line)

    def assertServes(self):
        """The next good request is served."""
        self.assertAnswers(
            *[self.send(good := {
                'spec_obj': builders.request().obj_to_primitive(),
                'instance_uuids': [GOOD_ID], 'return_objects': True}), good])

    def test_specs(self):
        @settings
        @hypothesis.given(fuzzing.mutated(fuzzing.specs()), VERSIONS)
        def check(arguments, version):
            self.check(arguments, version)

        check()

    def test_instances_and_flags(self):
        flags = st.booleans() | fuzzing.HOSTILE

        @settings
        @hypothesis.given(st.fixed_dictionaries(
            {'instance_uuids': fuzzing.HOSTILE | st.lists(
                fuzzing.UUIDS | fuzzing.HOSTILE, max_size=3)},
            optional={'return_objects': flags, 'return_alternates': flags}))
        def check(arguments):
            self.check({'spec_obj': builders.request().obj_to_primitive(),
                        **arguments})

        check()

    def test_sizes(self):
        spec = builders.request().obj_to_primitive()
        flavor = spec['nova_object.data']['flavor']['nova_object.data']

        @settings
        @hypothesis.given(st.dictionaries(
            st.sampled_from(SIZES), st.integers() | fuzzing.HOSTILE,
            min_size=1))
        def check(sizes):
            sent = copy.deepcopy(spec)
            sent['nova_object.data']['flavor']['nova_object.data'] = {
                **flavor, **sizes}
            self.check({'spec_obj': sent, 'instance_uuids': [hostile.ID]})

        check()

    def test_dicts(self):
        @settings
        @hypothesis.given(fuzzing.mutated(fuzzing.dicts(), most=1))
        def check(arguments):
            self.check(arguments)

        check()

    def test_contexts(self):
        names = st.sampled_from([
            *base.USER.to_dict(), 'deadline', 'cell', 'overwrite', 'x',
            hostile.CRLF])

        @settings
        @hypothesis.given(st.dictionaries(
            names, fuzzing.HOSTILE, min_size=1, max_size=2))
        def check(values):
            self.check(
                {'spec_obj': builders.request().obj_to_primitive()},
                context={**base.USER.to_dict(), **values})

        check()

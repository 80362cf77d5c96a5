# SPDX-License-Identifier: Apache-2.0
"""Traces of builds, from the request to the active server."""

from opentelemetry.sdk import trace
from opentelemetry.sdk.trace import export
from opentelemetry.sdk.trace.export import in_memory_span_exporter

from cellsched.observability import tracing
from cellsched.standalone import deployment
from tests.functional import base

#: The spans of a build and the span above each of them, both without spans of
#: messages.
BUILD = {
    ('accept', None), ('build and schedule', 'accept'),
    ('schedule', 'build and schedule'), ('read hosts', 'schedule'),
    ('decide', 'schedule'), ('claim', 'schedule'),
    ('write to cell', 'build and schedule'),
    ('cast to hosts', 'build and schedule'),
    ('build on host', 'cast to hosts'),
    ('allocate networks', 'build on host'), ('spawn', 'build on host')}


class TestTraces(base.TestCase):

    def setUp(self):
        super().setUp()
        self.exporter = in_memory_span_exporter.InMemorySpanExporter()
        provider = trace.TracerProvider()
        provider.add_span_processor(export.SimpleSpanProcessor(self.exporter))
        self.addCleanup(tracing.start_with(
            lambda: (provider, False), lambda function, seconds: None))

    def traces(self):
        """Return the ended spans of each trace that begins with a request."""
        spans = self.exporter.get_finished_spans()
        return [
            [span for span in spans
             if span.context.trace_id == root.context.trace_id]
            for root in spans if root.name == 'accept']

    def tree(self, spans):
        """Return each span and the span above, without those of messages."""
        known = {span.context.span_id: span for span in spans}

        def above(span):
            while span.parent is not None:
                span = known[span.parent.span_id]
                if span.instrumentation_scope.name == 'cellsched':
                    return span.name
            return None

        return {(span.name, above(span)) for span in spans
                if span.instrumentation_scope.name == 'cellsched'}

    def named(self, name):
        [spans] = self.traces()
        return next(span for span in spans if span.name == name)

    def ended(self, *names):
        """Wait until spans of these names have ended."""
        self.until(lambda: set(names) <= {
            span.name for span in self.exporter.get_finished_spans()}, names)

    def test_build_is_a_single_trace_in_the_order_of_its_steps(self):
        self.deploy({'cell1': ['a1'], 'cell2': ['b1']})

        [found] = self.built()

        self.ended('build on host', 'build and schedule', 'accept')
        [spans] = self.traces()
        self.assertEqual(BUILD, self.tree(spans))
        for name in 'accept', 'build and schedule', 'decide', 'spawn':
            self.assertEqual(
                (found.uuid, base.USER.request_id), tuple(
                    self.named(name).attributes[key] for key in (
                        'cellsched.server.uuid', 'openstack.request_id')))
        decided = self.named('decide').attributes
        self.assertEqual((2, 2), (decided['cellsched.hosts.count'],
                                  decided['cellsched.hosts.left']))
        self.assertIn('ComputeFilter 2', decided['cellsched.stages'])
        self.assertEqual(found.cell, self.named('write to cell').attributes[
            'cellsched.cell.name'])
        built = self.named('build on host').attributes
        self.assertEqual((found.host, 'active'), (
            built['cellsched.host.name'], built['cellsched.build.result']))

    def test_a_server_without_a_host_has_its_burial_in_the_trace(self):
        self.deploy({'cell1': ['a1']})

        self.create(flavor='huge')

        self.ended('bury in cell0', 'build and schedule', 'accept')
        [spans] = self.traces()
        self.assertIn(('bury in cell0', 'build and schedule'),
                      self.tree(spans))
        self.assertEqual('NoValidHost', self.named(
            'bury in cell0').attributes['error.type'])

    def test_a_build_on_a_second_host_stays_in_its_trace(self):
        self.deploy({'cell1': [
            deployment.DeployedHost(
                'a1', memory_mb=65536, behaviour={'fail_builds': 1}), 'a2']})

        self.built()

        self.until(lambda: [
            span.attributes['cellsched.build.result']
            for span in self.exporter.get_finished_spans()
            if span.name == 'build on host'] == ['rescheduled', 'active'],
            'both builds have ended')
        self.ended('reschedule', 'build and schedule', 'accept')
        [spans] = self.traces()
        self.assertEqual(
            {('reschedule', 'build on host'), ('claim', 'reschedule'),
             ('build on host', 'reschedule')}, self.tree(spans) - BUILD)

    def test_another_conductor_continues_the_trace_of_a_lost_message(self):
        self.deploy({'cell1': ['a1']})
        [uuid] = self.unheard().servers.create(base.USER, 'server', 'small')

        self.recover(3600)

        self.settled([uuid])
        self.ended('build on host', 'build and schedule', 'accept')
        [spans] = self.traces()
        self.assertEqual(BUILD, self.tree(spans))

    def test_the_trace_is_not_visible_to_users(self):
        self.deploy({'cell1': ['a1']})

        [uuid] = self.unheard().servers.create(base.USER, 'server', 'small')

        self.assertNotIn('traceparent', repr(self.get(uuid)))

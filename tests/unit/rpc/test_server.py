# SPDX-License-Identifier: Apache-2.0
from concurrent import futures
import logging
import queue
import sys
import threading
import types
from unittest import mock

import fixtures
from oslo_context import context as oslo_context
import oslo_messaging
from oslo_messaging.rpc import dispatcher as oslo_dispatcher
from oslo_versionedobjects import exception as ovo_exception

from cellsched import batching
from cellsched import context
from cellsched import exception
from cellsched import objects
from cellsched.rpc import client
from cellsched.rpc import server
from cellsched.rpc import transport
from cellsched.testing import clock
from tests.unit.base import TestCase
from tests.unit.rpc import base
from tests.unit.rpc import test_local


class Endpoint(base.Recorder):

    target = oslo_messaging.Target(version='1.0')

    def __init__(self):
        super().__init__()
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def thread(self, context):
        return threading.current_thread().name

    def slow(self, context):
        self.begun.set()
        self.go_on.wait(base.DEADLINE_S)
        self.received.put('done')

    def unexpected(self, context):
        raise KeyError('unexpected')


class TestServer(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        self.endpoint = Endpoint()
        self.context = context.RequestContext()
        self.client = client.Client(self.transport, 'topic', '1.0')

    def test_unknown_method_is_answered_with_an_error(self):
        self.serve(self.endpoint)

        error = self.assertRaises(
            oslo_messaging.RemoteError,
            self.client.call, self.context, 'nonsense')

        self.assertEqual('NoSuchMethod', error.exc_type)

    def test_unexpected_error_is_logged_and_travels(self):
        self.serve(self.endpoint)

        self.assertRaises(KeyError,
                          self.client.call, self.context, 'unexpected')

        self.assertIn('Traceback', self.logs.output)

    def test_hostile_method_name_is_not_logged_verbatim(self):
        logs = self.useFixture(fixtures.FakeLogger(
            'oslo_messaging', level=logging.INFO))
        self.serve(self.endpoint)
        for name in ('x\r\nroot logged in', 'x\ud800', 'x' * 1_000_000):
            self.assertRaises(oslo_messaging.RemoteError,
                              self.client.call, self.context, name)
        for name in (None, [[]], 5):
            error = self.assertRaises(exception.InvalidField,
                                      self.client.call, self.context, name)
            self.assertEqual('method', error.field)

        self.assertEqual('', logs.output)
        for line in self.logs.output.splitlines():
            self.assertFalse(line.startswith('root'), line)
            self.assertLess(len(line), 400)

    def test_server_ends_after_its_received_messages(self):
        made = self.serve(self.endpoint)
        self.client.cast(self.context, 'slow')
        self.endpoint.begun.wait(base.DEADLINE_S)
        made.stop()
        self.client.cast(self.context, 'slow')
        self.endpoint.go_on.set()

        made.wait()

        self.assertEqual('done', self.endpoint.received.get_nowait())
        self.assertTrue(self.endpoint.received.empty())

    def test_stopped_server_has_no_threads(self):
        before = set(threading.enumerate())
        made = self.serve(self.endpoint)
        name = self.client.call(self.context, 'thread')
        working = set(threading.enumerate()) - before

        self.end(made)

        self.assertIn(name, {thread.name for thread in working})
        self.assertEqual(set(), set(threading.enumerate()) - before)

    def test_servers_of_a_topic_have_separate_names(self):
        self.serve(self.endpoint, host='one')
        asked = client.Client(self.transport, 'topic', '1.0', 'baseapi',
                              timeout_s=0.01)

        self.assertRaises(
            oslo_messaging.MessagingTimeout,
            asked.call, self.context, 'ping', None, 'another', arg=1)


class TestPing(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        self.context = context.RequestContext()

    def test_each_server_answers_a_ping(self):
        self.serve(Endpoint())
        asked = client.Client(self.transport, 'topic', '1.1', 'baseapi')

        self.assertEqual(
            {'service': 'topic', 'arg': ['any', 'thing']},
            asked.call(self.context, 'ping', arg=['any', 'thing']))

    def test_ping_of_oslo_messaging_is_answered_if_enabled(self):
        self.conf.set_override('rpc_ping_enabled', True)
        self.serve(Endpoint())
        asked = client.Client(self.transport, 'topic', '1.0')

        self.assertEqual(
            'pong', asked.call(self.context, 'oslo_rpc_server_ping'))

    def test_ping_of_oslo_messaging_is_unknown_otherwise(self):
        self.serve(Endpoint())
        asked = client.Client(self.transport, 'topic', '1.0')

        self.assertRaises(
            oslo_messaging.RemoteError,
            asked.call, self.context, 'oslo_rpc_server_ping')


class TestEndpoints(base.RPCTestCase):

    def test_endpoints_of_the_caller_are_not_modified(self):
        endpoints = [Endpoint()]

        server.server(
            self.transport, 'topic', 'host', endpoints)

        self.assertEqual(1, len(endpoints))


CRLF = 'a\r\nINFO root logged in \x1b[2J\0\ud800'

FORMATS = '%s%n%(x)s{0.__class__}'


class Incoming:
    """A message that came."""

    client_timeout = None

    def __init__(self, message, context=None):
        self.message = message
        self.ctxt = {} if context is None else context
        self.alive = threading.Event()

    def heartbeat(self):
        self.alive.set()


class DispatchEndpoint:

    target = oslo_messaging.Target(version='4.5')
    #: No method, but it can be called.
    kind = dict
    error = None

    def __init__(self):
        self.called = []
        self.held = lambda context: 'held'

    def take(self, context, needed, other=None):
        self.called.append((needed, other))
        if self.error is not None:
            raise self.error
        return 'taken'

    def take_any(self, context, **arguments):
        return arguments

    def _private(self, context):
        raise AssertionError('reached')

    @staticmethod
    def loose(context):
        raise AssertionError('reached')


class Versioned:

    target = oslo_messaging.Target(namespace='other', version='1.1')

    def take(self, context):
        return 'other'


class DispatcherTestCase(TestCase):

    def setUp(self):
        super().setUp()
        self.endpoint = DispatchEndpoint()
        self.clock = clock.FakeClock()
        self.translated = []
        self.dispatcher = server.Dispatcher(
            [self.endpoint, Versioned()], server.Arguments(),
            self.clock.timestamp, self.translate)

    def translate(self, error):
        self.translated.append(error)
        return error

    def send(self, method='take', context=None, **message):
        message.setdefault('version', '4.5')
        return self.dispatcher.dispatch(
            Incoming({'method': method, **message}, context))

    def assertFails(self, method='take', context=None, **message):
        """Return the error that the caller is told, and what is logged."""
        before = len(self.logs.output)
        sent = self.assertRaises(
            oslo_dispatcher.ExpectedException, self.send, method, context,
            **message)
        error = sent.exc_info[1]
        self.assertIs(self.translated.pop(), error)
        [line] = self.logs.output[before:].splitlines()
        self.assertTrue(line.isprintable(), ascii(line))
        self.assertLess(len(line), 1110)
        return error, line

    def assertRefused(self, kind, said, *args, **message):
        error, line = self.assertFails(*args, **message)
        self.assertIs(kind, type(error))
        self.assertIn(said, line)
        self.assertTrue(line.startswith('Refused '), line)
        self.assertEqual([], self.endpoint.called)
        return error, line


class TestMethods(DispatcherTestCase):

    def test_method_is_called(self):
        self.assertEqual('taken', self.send(args={'needed': [1]}))

        self.assertEqual([([1], None)], self.endpoint.called)
        self.assertEqual('', self.logs.output)

    def test_private_method_is_not_callable(self):
        for name in ('nonsense', '_private', '__init__', '__class__',
                     'target', 'kind', 'held', 'loose', 'error', 'called',
                     'take.__func__', 'take ', '', CRLF, FORMATS,
                     'x' * 10_000_000):
            with self.subTest(name=name[:20]):
                self.assertRefused(
                    oslo_dispatcher.NoSuchMethod, 'does not support', name,
                    args={'needed': 1})

    def test_unknown_name_is_shown_printably_and_shortened(self):
        for name, told in ((CRLF, 'a??INFO root logged in ?[2J??'),
                           (FORMATS, FORMATS), ('x' * 9999, 'x' * 80)):
            error, line = self.assertRefused(
                oslo_dispatcher.NoSuchMethod, told, name)
            self.assertIn(told, str(error))
            self.assertNotIn('x' * 81, line)

    def test_method_must_be_a_text(self):
        for name in (None, 5, True, [], ['take'], {'take': 1},
                     nested(sys.getrecursionlimit() * 2)):
            error, _ = self.assertRefused(
                exception.InvalidField, 'message: method:', name)
            self.assertEqual(('message', 'method'),
                             (error.where, error.field))

    def test_method_may_be_missing(self):
        sent = self.assertRaises(
            oslo_dispatcher.ExpectedException, self.dispatcher.dispatch,
            Incoming({}))

        self.assertEqual('method', sent.exc_info[1].field)

    def test_namespace_chooses_the_endpoint(self):
        self.assertEqual(
            'other', self.send(namespace='other', version='1.0'))

    def test_unknown_namespace_has_no_methods(self):
        for name in ('baseapi', '', [], ['other'], {}, 5, True):
            self.assertRefused(
                oslo_dispatcher.NoSuchMethod, 'method take',
                namespace=name, args={'needed': 1})


class TestVersions(DispatcherTestCase):

    def test_older_minor_version_is_taken(self):
        for version in ('4.0', '4.5', '4.3.7'):
            self.assertEqual(
                'taken', self.send(version=version, args={'needed': 1}))

    def test_unsupported_version_is_refused(self):
        for version in ('99.0', '4.6', '3.9', '5.0', '0.0',
                        '9' * 17 + '.0'):
            error, _ = self.assertRefused(
                oslo_dispatcher.UnsupportedVersion, version,
                version=version, args={'needed': 1})
            self.assertEqual('take', error.method)

    def test_invalid_version_is_refused(self):
        for version in ('x', '', '4', '4.', '.5', '-4.5', '4.5.6.7', '4,5',
                        '\u0664.5', '4.5\n', CRLF, FORMATS,
                        '9' * 5_000_000 + '.0', 5, 4.5, None, True, [4, 5],
                        {}, nested(sys.getrecursionlimit() * 2)):
            with self.subTest(version=type(version)):
                self.assertRefused(
                    exception.InvalidField, 'message: version:',
                    version=version, args={'needed': 1})

    def test_refused_call_starts_no_heartbeat_thread(self):
        before = set(threading.enumerate())
        incoming = Incoming({'method': 'take', 'version': '99.0',
                             'args': {'needed': 1}})
        incoming.client_timeout = 2

        self.assertRaises(oslo_dispatcher.ExpectedException,
                          self.dispatcher.dispatch, incoming)

        # Threads of earlier tests may have ended.
        self.assertEqual(set(), set(threading.enumerate()) - before)


class TestArguments(DispatcherTestCase):

    def test_arguments_must_have_names(self):
        for args in ([], [1], 'needed', None, 5, True):
            self.assertRefused(
                exception.InvalidField, 'message: args:', args=args)

    def test_unknown_argument_is_named(self):
        for name, told in (('more', 'more'), ('self', 'self'),
                           ('context', 'context'), ('_x', '_x'),
                           (CRLF, 'a??INFO'), (FORMATS, FORMATS),
                           ('x' * 1_000_000, 'x' * 80)):
            error, _ = self.assertRefused(
                exception.InvalidField, f'take: {told}',
                args={'needed': 1, name: CRLF})
            self.assertEqual('take', error.where)
            self.assertLessEqual(len(error.field), 80)

    def test_missing_argument_is_named(self):
        for message in ({}, {'args': {}}, {'args': {'other': 1}}):
            self.assertRefused(
                exception.InvalidField,
                'take: needed: the argument is missing', **message)

    def test_method_may_take_any_arguments(self):
        self.assertEqual(
            {'x': 1, 'y': [2]},
            self.send('take_any', args={'x': 1, 'y': [2]}))

    def test_unreadable_object_is_refused(self):
        for bad in ({'nova_object.name': 'Flavor'},
                    {'nova_object.name': []},
                    nested(sys.getrecursionlimit() * 2)):
            self.assertRefused(
                exception.InvalidField, 'message: nova_object:',
                args={'needed': bad})

    def test_object_of_another_major_version_is_refused_by_its_name(self):
        self.assertRefused(
            ovo_exception.IncompatibleObjectVersion, 'Flavor', args={
                'needed': {
                    'nova_object.name': 'Flavor',
                    'nova_object.namespace': 'nova',
                    'nova_object.version': '99.0',
                    'nova_object.data': {}}})


class TestContexts(DispatcherTestCase):

    def test_context_must_be_a_dict(self):
        for wrong in ([1], 'x', 5, True):
            self.assertRefused(
                exception.InvalidField, 'message: context:', 'take', wrong,
                args={'needed': 1})

    def test_logged_fields_of_a_context_must_be_short_texts(self):
        for name in ('request_id', 'global_request_id', 'user', 'user_id',
                     'project_id', 'tenant', 'domain', 'resource_uuid'):
            for bad in (CRLF, 'x' * 256, 5, [], {},
                        nested(sys.getrecursionlimit() * 2)):
                self.assertRefused(
                    exception.InvalidField, f'context.{name}:', 'take',
                    {name: bad}, args={'needed': 1})

    def test_log_does_not_name_the_request_before(self):
        for refused in ({'user': CRLF}, {'deadline': 1}):
            self.send(context={'request_id': 'before', 'user': 'good'},
                      args={'needed': 1})
            self.endpoint.called.clear()
            self.assertEqual('before', oslo_context.get_current().request_id)

            self.assertFails('take', refused, args={'needed': 1})

            current = oslo_context.get_current()
            self.assertNotEqual('before', current.request_id)
            self.assertIsNone(current.user_id)

    def test_other_fields_of_a_context_are_ignored(self):
        for wrong in ({'roles': 5, 'service_catalog': CRLF},
                      {'unknown': nested(9), 'read_deleted': 'no'},
                      {'request_id': None, 'user': 'x', 'is_admin': 'x'}):
            self.assertEqual(
                'taken', self.send(context=wrong, args={'needed': 1}))


class TestDeadlines(DispatcherTestCase):

    def late(self, late_s):
        return {'deadline': self.clock.timestamp() - late_s}

    def test_call_past_its_timeout_is_not_begun(self):
        for late_s in (server.LATE_S + 1, 1e9):
            error, line = self.assertRefused(
                exception.DeadlineExceeded, 'The deadline of', 'take',
                self.late(late_s), args={'needed': 1})
            self.assertEqual(late_s, error.late_s)

    def test_call_within_its_timeout_is_begun(self):
        for late_s in (-1e9, 0, server.LATE_S):
            self.assertEqual('taken', self.send(
                context=self.late(late_s), args={'needed': 1}))

    def test_deadlines_are_ignored_without_a_clock(self):
        self.dispatcher = server.Dispatcher(
            [self.endpoint], server.Arguments(), None, self.translate)
        self.assertEqual('taken', self.send(
            context=self.late(1e9), args={'needed': 1}))

    def test_invalid_deadline_is_ignored(self):
        for deadline in (None, 'x', '1', [], {}, True, False, 10 ** 400,
                         -10 ** 400, float('nan'), float('inf'),
                         float('-inf')):
            self.assertEqual('taken', self.send(
                context={'deadline': deadline}, args={'needed': 1}))
            self.assertIsNone(oslo_context.get_current().answer_by)

    def test_context_of_the_method_has_the_time_of_the_answer(self):
        sent = self.late(-5)

        self.send(context=sent, args={'needed': 1})

        received = oslo_context.get_current()
        self.assertEqual(sent['deadline'] + server.LATE_S, received.answer_by)
        # Calls and casts of the receiver have deadlines of their own.
        self.assertNotIn('deadline', received.to_dict())


class TestErrors(DispatcherTestCase):

    def failing(self, error):
        self.endpoint.error = error
        return self.assertFails(args={'needed': 1})

    def test_answer_to_users_is_not_logged(self):
        self.endpoint.error = exception.NoValidHost(reason='full')

        sent = self.assertRaises(oslo_dispatcher.ExpectedException,
                                 self.send, args={'needed': 1})

        self.assertIs(self.endpoint.error, sent.exc_info[1])
        self.assertEqual('', self.logs.output)

    def test_error_of_the_project_is_logged_in_a_single_line(self):
        for text in ('gone', CRLF, FORMATS, 'x' * 1_000_000):
            error, line = self.failing(
                exception.CellUnreachable(cell='cell1', reason=text))
            self.assertIs(self.endpoint.error, error)
            self.assertTrue(
                line.startswith('take failed: Cell cell1 did not'), line)

    def test_level_shows_the_origin_of_an_error(self):
        levels = []
        handler = logging.Handler()
        handler.emit = lambda record: levels.append(record.levelname)
        server.LOG.addHandler(handler)
        self.addCleanup(server.LOG.removeHandler, handler)

        self.failing(exception.CellUnreachable(cell='x', reason='x'))
        self.failing(exception.InvalidField(
            where='x', field='x', expected='x'))

        self.assertEqual(['ERROR', 'WARNING'], levels)

    def test_error_of_a_caller_is_a_refusal(self):
        for error in (exception.InvalidField(where='x', field='x',
                                             expected=CRLF),
                      ovo_exception.IncompatibleObjectVersion(
                          objname=CRLF, objver='x', supported='x')):
            _, line = self.failing(error)
            self.assertTrue(line.startswith('Refused take: '), line)

    def test_expected_exception_of_oslo_messaging_is_an_answer(self):
        @oslo_messaging.expected_exceptions(KeyError)
        def fails():
            raise KeyError('expected')

        self.patch(DispatchEndpoint, 'take_any',
                   lambda self, context, **arguments: fails())

        sent = self.assertRaises(oslo_dispatcher.ExpectedException,
                                 self.send, 'take_any', args={})

        self.assertEqual('expected', sent.exc_info[1].args[0])
        self.assertEqual('', self.logs.output)

    def test_unexpected_error_is_raised_in_the_server(self):
        self.endpoint.error = KeyError('what?')

        self.assertRaises(KeyError, self.send, args={'needed': 1})

        self.assertEqual([], self.translated)


def nested(depth):
    """Return a list in a list, and so on."""
    outer = []
    for _ in range(depth):
        outer = [outer]
    return outer


REASON = 'Of 7 hosts 4 lack memory, 3 are disabled.'

REJECTIONS = [{'by': 'RamFilter', 'hosts': 4, 'reason': 'lack memory'},
              {'by': 'ComputeFilter', 'hosts': 3, 'reason': 'are disabled'}]


class NovaException(Exception):
    """Takes what Nova's base of all errors takes."""

    msg_fmt = 'An unknown exception occurred.'
    code = 500

    def __init__(self, message=None, **kwargs):
        self.kwargs = kwargs
        self.kwargs.setdefault('code', self.code)
        super().__init__(message or self.msg_fmt % kwargs)

    def format_message(self):
        return self.args[0]


class NoValidHost(NovaException):
    msg_fmt = 'No valid host was found. %(reason)s'


class MaxRetriesExceeded(NoValidHost):
    msg_fmt = 'Exceeded maximum number of retries. %(reason)s'


class RaisingEndpoint:

    target = oslo_messaging.Target(version='1.0')
    error: Exception

    def ask(self, context):
        raise self.error


def no_host(kind=exception.NoValidHost):
    return kind(reason=REASON, placed=0, rejections=REJECTIONS)


def wrong_field():
    return exception.InvalidField(
        where='select_destinations', field='spec_obj.flavor',
        expected='a Flavor')


class TestTranslation(base.RPCTestCase):

    def test_unknown_form_of_errors_is_refused(self):
        error = no_host()

        self.assertIs(error, server.translation('cellsched')(error))
        self.assertIs(
            server.as_nova, server.translation('nova'))
        self.assertRaises(KeyError, server.translation, 'x')

    def test_error_has_the_name_and_the_text_of_novas(self):
        for made, theirs in (
                (no_host(), NoValidHost),
                (no_host(exception.MaxRetriesExceeded), MaxRetriesExceeded)):
            sent = server.as_nova(made)
            expected = theirs(reason=REASON)
            self.assertEqual(
                ('nova.exception', theirs.__name__),
                (type(sent).__module__, type(sent).__name__))
            self.assertEqual(str(expected), str(sent))
            self.assertEqual(expected.kwargs, sent.kwargs)

    def test_invalid_field_is_named(self):
        sent = server.as_nova(wrong_field())

        self.assertEqual('NoValidHost', type(sent).__name__)
        self.assertEqual(
            {'reason': 'select_destinations: spec_obj.flavor: expected a '
                       'Flavor',
             'code': 500}, sent.kwargs)
        self.assertEqual(str(NoValidHost(**sent.kwargs)), str(sent))

    def test_failed_plugin_is_named(self):
        sent = server.as_nova(exception.PluginFailed(
            kind='Filter', plugin='FooFilter'))

        self.assertEqual('NoValidHost', type(sent).__name__)
        self.assertEqual('No valid host was found. Filter FooFilter failed.',
                         str(sent))

    def test_uncertain_host_state_is_sent_as_a_known_error(self):
        sent = server.as_nova(
            exception.HostStateUncertain(hosts=9, known=10))

        self.assertEqual('NoValidHost', type(sent).__name__)
        self.assertIn('9 of 10 went down at the same time', str(sent))

    def test_format_directives_in_a_text_are_unchanged(self):
        for text in ('%s%n%(x)s', '{0.__class__}'):
            sent = server.as_nova(
                exception.NoValidHost(reason=text))

            self.assertEqual(f'No valid host was found. {text}', str(sent))

    def test_other_errors_are_not_translated(self):
        for error in (exception.CellUnreachable(cell='x', reason='x'),
                      exception.Invalid(), KeyError('x')):
            self.assertIs(error, server.as_nova(error))


class TestRemoteErrors(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        nova, module = (types.ModuleType(name)
                        for name in ('nova', 'nova.exception'))
        for kind in (NovaException, NoValidHost, MaxRetriesExceeded):
            setattr(module, kind.__name__, kind)
        self.enterContext(mock.patch.dict(
            sys.modules, {'nova': nova, 'nova.exception': module}))
        self.endpoint = RaisingEndpoint()

    def answer(self, error, form, *allowed):
        """Return what a caller gets that allows these modules."""
        made = server.server(self.transport, form, 'host',
                             [self.endpoint], error_form=form)
        made.start()
        self.addCleanup(self.end, made)
        transports = transport.Transports(self.conf, allowed)
        self.addCleanup(transports.close)
        self.endpoint.error = error
        caller = client.Client(
            transports.get(f'{self.world}/cell'), form, '1.0')
        try:
            caller.call(context.RequestContext(), 'ask')
        except Exception as exc:
            return exc
        raise AssertionError('nothing was raised')

    def test_caller_of_novas_gets_novas(self):
        for error, kind in (
                (no_host(), NoValidHost),
                (no_host(exception.MaxRetriesExceeded), MaxRetriesExceeded)):
            got = self.answer(error, 'nova', 'nova.exception')

            self.assertIsInstance(got, kind)
            self.assertIsInstance(got, NoValidHost)
            self.assertEqual({'reason': REASON, 'code': 500}, got.kwargs)
            self.assertEqual(error.format_message(), got.format_message())

    def test_caller_of_nova_gets_the_reason(self):
        got = self.answer(wrong_field(), 'nova', 'nova.exception')

        self.assertIsInstance(got, NoValidHost)
        self.assertIn('spec_obj.flavor: expected a Flavor',
                      got.kwargs['reason'])

    def test_caller_of_the_project_gets_errors_of_the_project(self):
        for kind in (exception.NoValidHost, exception.MaxRetriesExceeded):
            got = self.answer(
                no_host(kind), 'cellsched', 'cellsched.exception')

            self.assertIsInstance(got, kind)
            self.assertEqual(
                {'reason': REASON, 'placed': 0, 'rejections': REJECTIONS,
                 'code': 500}, got.kwargs)

    def test_caller_allowing_no_module_gets_the_text(self):
        for error, form, allowed, name in (
                (no_host(), 'nova', 'cellsched.exception', 'NoValidHost'),
                (no_host(), 'cellsched', 'nova.exception', 'NoValidHost'),
                (wrong_field(), 'nova', 'x', 'NoValidHost'),
                (exception.HardwareRequestInvalid(
                    error='Invalid', problem='CPU x'), 'nova', 'x',
                 'NoValidHost'),
                (wrong_field(), 'cellsched', 'x', 'InvalidField')):
            got = self.answer(error, form, allowed)

            self.assertIsInstance(got, oslo_messaging.RemoteError)
            self.assertEqual(name, got.exc_type)
            self.assertIn(error.format_message(), got.value)

    def test_counts_and_reasons_are_in_both_forms(self):
        for form, module in (('nova', 'nova.exception'),
                             ('cellsched', 'cellsched.exception')):
            got = self.answer(no_host(), form, module)

            self.assertEqual(
                f'No valid host was found. {REASON}', got.format_message())
            self.assertNotIn('Traceback', self.logs.output)


class Busy:
    """An endpoint whose calls hang until the test ends."""

    at_once = {'limited': 1}

    def __init__(self):
        self.begun = queue.Queue()
        self.go_on = threading.Event()

    def hang(self, context, instance_uuid=None, instances=()):
        self.begun.put(instance_uuid)
        self.go_on.wait(base.DEADLINE_S)

    limited = hang

    def echo(self, context, value):
        return value


class TestWaitingMessages(base.RPCTestCase):
    """Calls that hang, and others."""

    THREADS = 2

    def setUp(self):
        super().setUp()
        self.endpoint = Busy()
        self.server = self.serve(self.endpoint, threads=self.THREADS)
        self.addCleanup(self.endpoint.go_on.set)
        self.client = client.Client(self.transport, 'topic', '1.0')

    def cast(self, method='hang', project=None, **arguments):
        self.client.cast(context.RequestContext(project_id=project), method,
                         **arguments)

    def assertAnswers(self, project=None):
        self.assertEqual(5, self.client.call(
            context.RequestContext(project_id=project), 'echo', value=5))

    def test_twice_as_many_as_threads_keep_no_other_waiting(self):
        for _ in range(2 * self.THREADS):
            self.cast()

        self.assertAnswers()

    def test_messages_for_an_instance_occupy_a_single_thread(self):
        for _ in range(10 * self.THREADS):
            self.cast(instance_uuid='a')
        self.assertEqual('a', self.endpoint.begun.get(timeout=60))

        self.assertAnswers()
        self.assertTrue(self.endpoint.begun.empty())

    def test_instances_in_envelopes_share_a_single_thread(self):
        instance = objects.Instance(uuid='a')
        for _ in range(10 * self.THREADS):
            self.cast(instances=[instance])
        self.endpoint.begun.get(timeout=60)

        self.assertAnswers()
        self.assertTrue(self.endpoint.begun.empty())

    def test_method_with_a_limit_takes_no_more_threads(self):
        for number in range(10 * self.THREADS):
            self.cast('limited', instance_uuid=str(number))
        self.endpoint.begun.get(timeout=60)

        self.assertAnswers()
        self.assertTrue(self.endpoint.begun.empty())

    def test_server_knows_the_instances_of_waiting_messages(self):
        for number in range(3):
            self.cast('limited', instance_uuid=str(number))
        begun = self.endpoint.begun.get(timeout=60)

        self.assertEqual({'0', '1', '2'} - {begun},
                         self.server.waiting_instances())

    def test_message_above_the_limit_is_refused_as_busy(self):
        pool = futures.ThreadPoolExecutor(batching.TaskQueue.threads(1))
        self.addCleanup(pool.shutdown)
        full = server.server(
            self.transport, 'full', 'host', [self.endpoint],
            queue=batching.TaskQueue(pool, 1, waiting_max=1))
        full.start()
        self.addCleanup(self.end, full)
        self.addCleanup(self.endpoint.go_on.set)
        self.client = client.Client(self.transport, 'full', '1.0')
        for _ in range(2):
            self.cast(instance_uuid='a')

        with self.assertLogs(server.LOG.name, 'WARNING') as logged:
            for _ in range(2):
                self.assertRaises(exception.ServiceBusy, self.assertAnswers)

        # The log has one line for all of them.
        self.assertIn('Refused message echo', *logged.output)

    def test_malformed_messages_are_refused(self):
        for arguments in ({'instance_uuid': [1]}, {'instances': 5},
                          {'instances': [{'nova_object.data': 'a'}, 7, None]}):
            self.assertEqual([], server._instances(arguments))
        self.assertEqual([], server._instances([1]))


class TestSharedQueue(base.LocalTestCase):
    """Servers that share threads."""

    def setUp(self):
        super().setUp()
        self.pool = futures.ThreadPoolExecutor(
            batching.TaskQueue.threads(2))
        self.addCleanup(self.pool.shutdown)
        self.tasks = batching.TaskQueue(self.pool, 2)

    def pooled(self, endpoint, host):
        made = server.server(
            self.transport, 'topic', host, [endpoint], queue=self.tasks)
        made.start()
        self.addCleanup(self.end, made)
        return made

    def to(self, host):
        return self.client(target=base.TOPIC(server=host))

    def test_each_gets_its_own_messages(self):
        one, two = test_local.Endpoint(), test_local.Endpoint()
        self.pooled(one, 'one')
        self.pooled(two, 'two')

        self.to('one').cast({}, 'note', value=1)
        self.to('two').cast({}, 'note', value=2)

        self.assertEqual((1, 2), (one.next(), two.next()))
        self.assertEqual(5, self.to('two').call({}, 'echo', value=5))

    def test_error_travels_to_the_caller(self):
        self.pooled(test_local.Endpoint(), 'one')

        self.assertRaises(oslo_messaging.RemoteError, self.to('one').call,
                          {}, 'missing')

    def test_received_message_is_processed_before_the_server_ends(self):
        endpoint = base.Late()
        pooled = self.pooled(endpoint, 'one')
        answers = []
        caller = threading.Thread(target=lambda: answers.append(
            self.to('one').call({}, 'ask')))
        caller.start()
        # It is in the pool before the call is waited for.
        for _ in iter(lambda: pooled.is_busy, True):
            pass

        pooled.stop()
        endpoint.go_on.set()
        pooled.wait()
        caller.join()

        self.assertEqual(['late'], answers)
        self.assertFalse(pooled.is_busy)

    def test_unfinished_message_does_not_block_the_stop(self):
        begun, go_on = threading.Event(), threading.Event()

        class Endpoint:
            def hang(self, context):
                begun.set()
                go_on.wait(600)

        pooled = self.pooled(Endpoint(), 'one')
        # Before the server is waited for once more, at the end.
        self.addCleanup(go_on.set)
        self.to('one').cast({}, 'hang')
        self.assertTrue(begun.wait(600))

        pooled.stop()
        with self.assertLogs(server.LOG.name, 'WARNING') as logged:
            pooled.wait(timeout_s=0.01)

        self.assertIn('1 messages of topic topic', logged.output[0])

    def test_later_message_waits_for_the_next_server(self):
        first, second = test_local.Endpoint(), test_local.Endpoint()
        pooled = self.pooled(first, 'one')
        pooled.stop()

        self.to('one').cast({}, 'note', value=1)
        self.pooled(second, 'one')

        self.assertEqual(1, second.next())
        self.assertTrue(first.received.empty())

# SPDX-License-Identifier: Apache-2.0
"""Errors as callers of this project and of Nova get them."""

import sys
import types
from unittest import mock

import oslo_messaging

from cellsched import context
from cellsched import exception
from cellsched.rpc import client
from cellsched.rpc import remote_exceptions
from cellsched.rpc import server
from cellsched.rpc import transport
from tests.unit.rpc import base

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


class Endpoint:

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

    def test_there_are_two_forms(self):
        error = no_host()

        self.assertIs(error, remote_exceptions.translation('cellsched')(error))
        self.assertIs(
            remote_exceptions.as_nova, remote_exceptions.translation('nova'))
        self.assertRaises(KeyError, remote_exceptions.translation, 'x')

    def test_error_has_the_name_and_the_text_of_novas(self):
        for made, theirs in (
                (no_host(), NoValidHost),
                (no_host(exception.MaxRetriesExceeded), MaxRetriesExceeded)):
            sent = remote_exceptions.as_nova(made)
            expected = theirs(reason=REASON)
            self.assertEqual(
                ('nova.exception', theirs.__name__),
                (type(sent).__module__, type(sent).__name__))
            self.assertEqual(str(expected), str(sent))
            self.assertEqual(expected.kwargs, sent.kwargs)

    def test_what_is_wrong_is_named(self):
        sent = remote_exceptions.as_nova(wrong_field())

        self.assertEqual('NoValidHost', type(sent).__name__)
        self.assertEqual(
            {'reason': 'select_destinations: spec_obj.flavor: a Flavor',
             'code': 500}, sent.kwargs)
        self.assertEqual(str(NoValidHost(**sent.kwargs)), str(sent))

    def test_plugin_that_failed_is_named(self):
        sent = remote_exceptions.as_nova(exception.PluginFailed(
            kind='Filter', plugin='FooFilter'))

        self.assertEqual('NoValidHost', type(sent).__name__)
        self.assertEqual('No valid host was found. Filter FooFilter failed.',
                         str(sent))

    def test_doubt_is_an_answer_to_who_knows_of_none(self):
        sent = remote_exceptions.as_nova(
            exception.HostsInDoubt(hosts=9, known=10))

        self.assertEqual('NoValidHost', type(sent).__name__)
        self.assertIn('9 of 10 went down at one time', str(sent))

    def test_text_with_format_directives_stays_as_it_is(self):
        for text in ('%s%n%(x)s', '{0.__class__}'):
            sent = remote_exceptions.as_nova(
                exception.NoValidHost(reason=text))

            self.assertEqual(f'No valid host was found. {text}', str(sent))

    def test_one_name_is_one_class(self):
        self.assertIs(
            *(type(remote_exceptions.as_nova(no_host())) for _ in range(2)))

    def test_other_errors_stay_ours(self):
        for error in (exception.CellUnreachable(cell='x', reason='x'),
                      exception.Invalid(), KeyError('x')):
            self.assertIs(error, remote_exceptions.as_nova(error))


class TestOnTheWay(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        nova, module = (types.ModuleType(name)
                        for name in ('nova', 'nova.exception'))
        for kind in (NovaException, NoValidHost, MaxRetriesExceeded):
            setattr(module, kind.__name__, kind)
        self.enterContext(mock.patch.dict(
            sys.modules, {'nova': nova, 'nova.exception': module}))
        self.endpoint = Endpoint()

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

    def test_caller_of_novas_is_told_what_is_wrong(self):
        got = self.answer(wrong_field(), 'nova', 'nova.exception')

        self.assertIsInstance(got, NoValidHost)
        self.assertIn('spec_obj.flavor: a Flavor', got.kwargs['reason'])

    def test_caller_of_ours_gets_ours(self):
        for kind in (exception.NoValidHost, exception.MaxRetriesExceeded):
            got = self.answer(
                no_host(kind), 'cellsched', 'cellsched.exception')

            self.assertIsInstance(got, kind)
            self.assertEqual(
                {'reason': REASON, 'placed': 0, 'rejections': REJECTIONS,
                 'code': 500}, got.kwargs)

    def test_who_allows_neither_still_gets_the_text(self):
        for error, form, allowed, name in (
                (no_host(), 'nova', 'cellsched.exception', 'NoValidHost'),
                (no_host(), 'cellsched', 'nova.exception', 'NoValidHost'),
                (wrong_field(), 'nova', 'x', 'NoValidHost'),
                (wrong_field(), 'cellsched', 'x', 'InvalidField')):
            got = self.answer(error, form, allowed)

            self.assertIsInstance(got, oslo_messaging.RemoteError)
            self.assertEqual(name, got.exc_type)
            self.assertIn(error.format_message(), got.value)

    def test_users_read_counts_and_reasons_in_either_form(self):
        for form, module in (('nova', 'nova.exception'),
                             ('cellsched', 'cellsched.exception')):
            got = self.answer(no_host(), form, module)

            self.assertEqual(
                f'No valid host was found. {REASON}', got.format_message())
            self.assertNotIn('Traceback', self.logs.output)

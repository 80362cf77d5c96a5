# SPDX-License-Identifier: Apache-2.0
"""Strangers write into a server's queue, and the server goes on."""

import json
import logging
import pickle
from typing import Any
import uuid
import zlib

import kombu
import oslo_messaging

from cellsched import clock
from cellsched.conf import loader
from cellsched import context
from cellsched.rpc import client
from cellsched.rpc import server
from cellsched.rpc import transport
from tests.integration import base
from tests.integration import servers

SECRET = 's3cr3t'

CRLF = 'a\r\nINFO root logged in'

DEEP = '[' * 100_000 + ']' * 100_000

#: Until a server gives up a reply that nobody is there to take.
RETRY_S = 1

JSON = 'application/json'


class Echo:
    """Says what it is told."""

    target = oslo_messaging.Target(version='1.0')

    def echo(self, context, value):
        return value


class Opened:
    """Says so in a file where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (self.path, 'w')


class Records(logging.Handler):
    """Keeps what an operator would see."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += self.format(record).splitlines() or ['']


def wrapped(message: Any, version: Any = '2.0') -> str:
    """Return a message in its envelope; a text is there as it is."""
    if not isinstance(message, str):
        message = json.dumps(message)
    return json.dumps({'oslo.version': version, 'oslo.message': message})


def call(**values: Any) -> dict[str, Any]:
    """Return a good message, but for some of its values."""
    return {'method': 'echo', 'args': {'value': SECRET}, 'version': '1.0',
            '_unique_id': uuid.uuid4().hex, **values}


class TestHostileMessages(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        path = self.directory / 'server.conf'
        path.write_text('[oslo_messaging_rabbit]\n'
                        f'kombu_missing_consumer_retry_timeout = {RETRY_S}\n')
        url = self.part_of(servers.RabbitMQ).url('hostile')
        transports = transport.Transports(
            loader.load([], files=[str(path)], dirs=[]))
        self.addCleanup(transports.close)
        # With one thread, what comes first is done first.
        made = server.server(
            transports.get(url), 'victim', 'host', [Echo()],
            clock.Clock().timestamp)
        made.start(override_pool_size=1)
        self.addCleanup(made.wait)
        self.addCleanup(made.stop)
        self.caller = client.Client(
            transports.get(url), 'victim', '1.0', timeout_s=600)
        # What is written is in the queue before anything else is done.
        self.stranger = self.enterContext(kombu.Connection(
            url.replace('rabbit:', 'amqp:', 1),
            transport_options={'confirm_publish': True}))
        self.told = Records()
        logging.getLogger().addHandler(self.told)
        self.addCleanup(logging.getLogger().removeHandler, self.told)

    def write(
        self, body: str | bytes, content_type: str = JSON,
        content_encoding: str = 'utf-8', **properties: Any
    ) -> None:
        """Put something into the queue of the server."""
        self.stranger.Producer().publish(
            body, routing_key='victim', content_type=content_type,
            content_encoding=content_encoding, **properties)

    def assertServes(self) -> None:
        """The next good message is answered."""
        value = uuid.uuid4().hex
        self.assertEqual(value, self.caller.call(
            context.RequestContext(), 'echo', value=value))

    def assertSkips(
        self, body: str | bytes, said: str = 'Failed to process message',
        *options: str, **properties: Any
    ) -> None:
        """oslo.messaging drops a message, and shows nothing of it."""
        del self.told.lines[:]
        self.write(body, *options, **properties)
        self.assertServes()
        told = '\n'.join(self.told.lines)
        self.assertIn(said, told)
        self.assertNotIn(SECRET, told)
        self.assertNotIn('Traceback', told)

    def assertBrief(
        self, *said: str, lines: int = 1, of: str = '', **message: Any
    ) -> None:
        """A message is refused in few lines, and nothing of it is shown."""
        del self.told.lines[:]
        self.write(of or wrapped(call(**message)))
        self.assertServes()
        self.assertLogged(*said, lines=lines)

    def assertLogged(self, *said: str, lines: int = 1) -> None:
        told = self.told.lines
        self.assertEqual(lines, len(told), str(told[:20]))
        for line in told:
            self.assertNotIn(SECRET, line)
            self.assertTrue(line.isprintable(), ascii(line))
            self.assertLess(len(line), 1110)
        for text in said:
            self.assertIn(text, ' '.join(told))

    def test_body_other_than_json(self):
        for body in ('', SECRET, f'{{"x": "{SECRET}', "{'x': 1}", '\ufeff{}',
                     DEEP, '{"a":' * 100_000, '9' * 5000,
                     wrapped(f'{{"method": {SECRET}'), wrapped(DEEP),
                     wrapped('9' * 5000), wrapped('')):
            with self.subTest(body=body[:40]):
                self.assertSkips(body or ' ')

    def test_body_without_a_message(self):
        for body in ('5', 'null', 'true', f'"{SECRET}"', f'["{SECRET}"]',
                     wrapped('5'), wrapped('null'), wrapped('["x"]'),
                     json.dumps({'oslo.version': '2.0', 'oslo.message': 5}),
                     json.dumps({'oslo.version': '2.0', 'oslo.message': [
                         SECRET]})):
            with self.subTest(body=body[:40]):
                self.assertSkips(body)

    def test_message_without_a_method(self):
        for body in ('{}', '[]', '[["x", 1]]', wrapped('{}'), wrapped('[]'),
                     json.dumps({'oslo.message': SECRET}),
                     json.dumps({'oslo.version': '2.0'})):
            with self.subTest(body=body[:40]):
                self.assertBrief('message: method: ', of=body)

    def test_envelope_of_another_version(self):
        versions: tuple[Any, ...] = (
            '99.0', '3.0', 'x', 5, None, [], CRLF, 'x' * 10_000)
        for version in versions:
            with self.subTest(version=version):
                self.assertSkips(wrapped(call(), version))

    def test_bytes_without_text(self):
        for body, options in (
                (b'\xff\xfe\x00', {}),
                (b'{}', {'content_encoding': 'nonsense'}),
                (b'{}', {'content_encoding': CRLF}),
                (b'{}', {'headers': {'compression': 'application/x-gzip'}}),
                (b'{}', {'headers': {'compression': CRLF}}),
                (zlib.compress(b'[' * 10_000_000), {
                    'headers': {'compression': 'application/x-gzip'}})):
            with self.subTest(body=body[:40], options=options):
                self.assertSkips(body, ' message', **options)

    def test_only_json_is_read(self):
        path = self.directory / 'opened'
        for content_type, body in (
                ('application/x-python-serialize',
                 pickle.dumps(Opened(str(path)))),
                ('application/x-yaml',
                 f'!!python/object/apply:open ["{path}", "w"]'.encode()),
                ('text/plain', SECRET.encode()),
                ('application/data', SECRET.encode()),
                (CRLF, b'{}')):
            with self.subTest(content_type=content_type):
                self.assertSkips(body, '', content_type, 'binary')
        self.assertFalse(path.exists())

    def test_unknown_methods_versions_and_arguments(self):
        for said, message in (
                ('method nonsense', {'method': 'nonsense'}),
                ('method __init__', {'method': '__init__'}),
                ('a??INFO', {'method': CRLF}),
                ('message: method:', {'method': [SECRET]}),
                ('RPC version 99.0', {'version': '99.0'}),
                ('message: version:', {'version': None}),
                ('method echo', {'namespace': 'x'}),
                ('message: args:', {'args': [SECRET]}),
                ('echo: x: unknown argument', {'args': {'x': SECRET}}),
                ('echo: value: the argument is missing', {'args': {}}),
                ('message: nova_object:', {'args': {'value': {
                    'nova_object.name': 'Flavor'}}}),
                ('message: context.user:', {'_context_user': CRLF}),
                ('The deadline of this call', {'_context_deadline': 1})):
            with self.subTest(said=said):
                self.assertBrief(said, **message)

    def test_last_of_duplicate_keys_counts(self):
        self.assertBrief('method nonsense', of=wrapped(
            '{"method": "echo", "args": {"value": 1}, "method": "nonsense"}'))
        self.assertBrief('echo: x: unknown argument', of=wrapped(
            '{"method": "echo", "args": {"value": 1, "x": 1, "x": 2}}'))
        self.assertBrief('message: version:', of=wrapped(call()).replace(
            '"oslo', '"oslo.version": "99.0", "oslo', 1).replace(
            '\\"1.0\\"', '\\"1.0\\", \\"version\\": 5'))

    def test_large_message(self):
        # RabbitMQ 4.0 refuses messages of more than 16 MiB.
        large = SECRET * 2_500_000
        self.assertBrief(lines=0, args={'value': large})
        self.assertBrief(
            'echo: x: unknown argument', args={'value': 1, 'x': large})
        self.assertBrief('x' * 80, args={'value': 1, 'x' * 15_000_000: 1})
        self.assertSkips(f'{{"{large}')

    def test_deep_message(self):
        for depth in (300, 900):
            nested = '[' * depth + ']' * depth
            self.write(wrapped(
                f'{{"method": "echo", "args": {{"value": {nested}}}}}'))
            self.assertServes()
        self.assertLess(len(self.told.lines), 3, self.told.lines[:20])

    def test_invalid_reply_address_stops_no_server(self):
        for asker, queue in (('x', None), ('x', ['x']), ('x', {}), ('x', 5),
                             (['x'], 'x'), ('x', CRLF), (CRLF, 'x'),
                             ('x', 'x' * 256), (5, 'x'), (True, True)):
            with self.subTest(asker=asker, queue=queue):
                self.write(wrapped(call(_msg_id=asker, _reply_q=queue)))
                self.assertServes()

    def test_unknown_reply_address_is_given_up(self):
        for queue in ('nobody', '%s%n', 'x' * 255):
            with self.subTest(queue=queue[:9]):
                del self.told.lines[:]
                self.write(wrapped(call(_msg_id='7', _reply_q=queue)))
                # The next messages do not wait until it is given up.
                self.assertServes()
                while len(self.told.lines) < 2:
                    self.assertServes()
                self.assertLogged(
                    'failed to send after', 'drop reply', lines=2)
        # It is remembered.
        self.assertBrief('drop reply', _msg_id='7', _reply_q='nobody')

    def test_reply_to_the_server_itself_is_refused(self):
        self.write(wrapped(call(_msg_id='7', _reply_q='victim')))
        self.assertServes()
        self.assertServes()

        self.assertIn('Refused a message: message: method',
                      '\n'.join(self.told.lines))

    def test_invalid_heartbeat_interval_is_ignored(self):
        wishes: tuple[Any, ...] = (
            'x', '60', [], {}, -1, 0, 1e300, float('inf'), float('nan'),
            True, 10 ** 400)
        for wish in wishes:
            with self.subTest(wish=wish):
                self.assertBrief(lines=0, _timeout=wish)

    def test_repeated_message_is_refused(self):
        message = wrapped(call(_unique_id='7'))
        self.assertBrief(lines=0, of=message)
        self.assertSkips(message, 'ignoring duplicate message')

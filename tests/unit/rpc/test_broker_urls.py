# SPDX-License-Identifier: Apache-2.0
from urllib import parse

from kombu.utils import url as kombu_url

from cellsched.rpc import broker_urls
from tests.unit.rpc import base

#: What a password may have, and a URL uses for something else.
SPECIAL = '@:/%#?\'" \u00e9;,&=+[]$\\'

PASSWORD = parse.quote(SPECIAL, safe='')


class TestParse(base.RPCTestCase):

    def parse(self, url):
        return broker_urls.parse(self.conf, url)

    def test_percent_encoded_characters_are_decoded(self):
        [host] = self.parse(f'rabbit://{PASSWORD}:{PASSWORD}@h:1/v').hosts

        self.assertEqual((SPECIAL, SPECIAL, 'h', 1),
                         (host.username, host.password, host.hostname,
                          host.port))

    def test_unencoded_password_is_refused(self):
        for password in ('12/3', '12#3', '12?3', '12,3', '12,3:4', 'x/y',
                         'x#y', 'x?y', 'x,y', '12/@', '[x'):
            for scheme in 'rabbit', 'kombu+amqp', 'local':
                self.assertRaises(
                    ValueError, self.parse, f'{scheme}://u:{password}@h:1/v')

    def test_invalid_host_names_are_refused(self):
        for host in ('a b', 'a%2Fb', 'a;b', 'a&b'):
            self.assertRaises(ValueError, self.parse, f'rabbit://u:p@{host}/v')

    def test_brokers_differ_from_other_transports(self):
        for url, expected in (
                ('rabbit://h/', True), ('kombu+amqp://h/', True),
                ('kombu+amqps://h/', True), ('kombu+memory:///', False),
                ('local://h/', False), ('kafka://h/', False)):
            self.assertEqual(
                expected, broker_urls.is_broker(self.parse(url)), url)


class TestKombu(base.RPCTestCase):

    def parts(self, url):
        """Return what kombu is told of the first host of a URL."""
        url = broker_urls.parse(self.conf, url)
        host = url.hosts[0] if url.hosts else None
        return kombu_url.url_to_parts(broker_urls.for_kombu(url, host))

    def test_special_characters_arrive(self):
        for url in (f'rabbit://{PASSWORD}:{PASSWORD}@h:1/v',
                    f'kombu+amqp://{PASSWORD}:{PASSWORD}@h:1/v'):
            self.assertEqual(
                ('amqp', 'h', 1, SPECIAL, SPECIAL, 'v', {}), self.parts(url))

    def test_virtual_host_arrives(self):
        for name in '/', 'a/b', '/a', 'a?b', 'a#b', 'a;b', 'a@b', '\u00e9':
            self.assertEqual(name, self.parts(
                f'rabbit://u:p@h/{parse.quote(name, safe="")}').path)

    def test_default_port_is_the_port_of_amqp(self):
        self.assertEqual(5672, self.parts('rabbit://u:p@h/').port)

    def test_address_of_ipv6_arrives(self):
        parts = self.parts('rabbit://u:p@[::1]:7/v')

        self.assertEqual(('::1', 7), (parts.hostname, parts.port))

    def test_url_without_a_host_means_the_local_broker(self):
        self.assertEqual(
            ('amqp', 'localhost', 5672, 'guest', 'guest', 'v', {}),
            self.parts('rabbit:///v'))


class TestDriver(base.RPCTestCase):

    def for_driver(self, url):
        parsed = broker_urls.parse(self.conf, url)
        return parsed, broker_urls.for_driver(parsed)

    def test_url_readable_by_the_driver_is_unchanged(self):
        for url in ('rabbit://u:p%40%3A%23%3F@h:1/v', 'rabbit://h/',
                    'rabbit://u:p@h/%2F', 'rabbit:///v',
                    'local://u:a%2Fb@h/v'):
            parsed, given = self.for_driver(url)
            self.assertIs(parsed, given, url)

    def test_url_misread_by_the_driver_is_passed_to_kombu(self):
        for url in ('rabbit://u:a%2Fb@h:1/v?ssl=true',
                    'rabbit://a%2Fb:p@h:1/v?ssl=true',
                    'rabbit://u:p@h:1/a%3Fb?ssl=true'):
            parsed, given = self.for_driver(url)

            self.assertEqual(('kombu+amqp', [], {'ssl': 'true'}),
                             (given.transport, given.hosts, given.query))
            self.assertEqual(
                broker_urls.for_kombu(parsed, parsed.hosts[0]),
                f'amqp://{given.virtual_host}')

    def test_all_hosts_are_handed_on(self):
        parsed, given = self.for_driver(
            'rabbit://u:a%2Fb@h:1,x:y@[::1]:2/v')

        self.assertEqual(
            [broker_urls.for_kombu(parsed, host) for host in parsed.hosts],
            f'amqp://{given.virtual_host}'.split(';'))

# SPDX-License-Identifier: Apache-2.0
"""The URL of claims in Cassandra."""

import ssl

import hypothesis
from hypothesis import strategies
from oslo_config import cfg

from cellsched.claims.cassandra import client
from cellsched.claims.cassandra import options
from cellsched import exception
from tests.unit import base as tests


class TestAddress(tests.TestCase):

    def test_url_has_nodes_keyspace_and_user(self):
        found = options.address(
            'cassandra://me:p%40ss@one:9043,[::1]:9044,two/claims')

        self.assertEqual(
            (('one', 9043), ('::1', 9044), ('two', 9042)), found.hosts)
        self.assertEqual(('claims', 'me', 'p@ss'), (
            found.keyspace, found.user, found.password))

    def test_user_is_optional(self):
        found = options.address('cassandra://127.0.0.1/claims')

        self.assertEqual((None, None), (found.user, found.password))

    def test_password_is_not_shown(self):
        found = options.address('cassandra://me:secret@one/claims')

        self.assertNotIn('secret', found.shown)
        self.assertNotIn('secret', repr(found))

    def test_other_urls_are_refused_by_the_option(self):
        for url in (None, '', 'etcd://one/claims', 'cassandra://one',
                    'cassandra://one/', 'cassandra:///claims',
                    'cassandra://one,/claims', 'cassandra://one:0/claims',
                    'cassandra://one:65536/claims', 'cassandra://one:x/c',
                    'cassandra://one/Claims', 'cassandra://one/a b',
                    'cassandra://me@one/claims', 'cassandra://me:@one/claims',
                    'cassandra://one/' + 'x' * 49):
            found = self.assertRaises(
                exception.ConfigurationInvalid, options.address, url)
            self.assertEqual('[claims] connection', found.field)

    @hypothesis.given(strategies.text(max_size=60))
    def test_refusal_shows_no_password(self, text):
        secret = 'vErYsEcReT'
        try:
            found = options.address(f'cassandra://me:{secret}@{text}')
        except exception.ConfigurationInvalid as exc:
            self.assertNotIn(secret, str(exc))
        else:
            self.assertNotIn(secret, found.shown)


class TestConsistency(tests.TestCase):

    def test_local_quorum_goes_with_local_serial_only(self):
        conf = cfg.ConfigOpts()
        conf.register_opts(options.opts(), group=options.GROUP)
        conf([], default_config_files=[])
        options.check(conf.cassandra)
        conf.set_override('consistency', 'LOCAL_QUORUM', group='cassandra')

        found = self.assertRaises(
            exception.ConfigurationInvalid, options.check, conf.cassandra)

        self.assertEqual('[cassandra] consistency', found.field)
        conf.set_override(
            'serial_consistency_level', 'LOCAL_SERIAL', group='cassandra')
        options.check(conf.cassandra)


class TestTls(tests.TestCase):

    def configured(self, **changed):
        conf = cfg.ConfigOpts()
        conf.register_opts(options.opts(), group=options.GROUP)
        conf([], default_config_files=[])
        for name, value in changed.items():
            conf.set_override(name, value, group=options.GROUP)
        return conf.cassandra

    def test_url_says_whether_to_use_tls(self):
        for scheme, tls in ('cassandra', False), ('cassandras', True):
            found = options.address(f'{scheme}://me:secret@one/claims')

            self.assertEqual(tls, found.tls)
            self.assertNotIn('secret', found.shown)

    def test_certificate_without_its_key_is_refused(self):
        for name in 'certfile', 'keyfile':
            found = self.assertRaises(
                exception.ConfigurationInvalid, options.check,
                self.configured(**{name: 'a.pem'}))
            self.assertIn('certfile and keyfile', found.field)

    def test_settings_check_the_certificate_and_the_address(self):
        found = client.tls_context(self.configured())
        self.assertEqual((ssl.CERT_REQUIRED, True),
                         (found.verify_mode, found.check_hostname))

        found = client.tls_context(self.configured(verify_hostname=False))
        self.assertEqual((ssl.CERT_REQUIRED, False),
                         (found.verify_mode, found.check_hostname))

    def test_unreadable_file_is_refused(self):
        path = self.temporary_directory() / 'a.pem'
        for text in None, 'no certificate':
            if text:
                path.write_text(text)
            found = self.assertRaises(
                exception.ConfigurationInvalid, client.tls_context,
                self.configured(cafile=str(path)))
            self.assertIn('[cassandra] cafile', found.field)

# SPDX-License-Identifier: Apache-2.0
"""Claim stores on servers that require TLS, a certificate and a password."""

import contextlib
import io
import os
import signal
import ssl
import urllib.request

import etcd3gw

from cellsched.cli import app
from tests.integration import base
from tests.integration import cassandra
from tests.integration import etcd
from tests.integration import mariadb
from tests.integration import placement
from tests.integration import processes
from tests.integration import servers
from tests.integration import serving
from tests import profile


class Certificates:
    """An authority, and certificates of a server and of a client."""

    subject = '/CN=cellsched'

    def make_certificates(self):
        self.files = {
            name: f'{self.directory}/{name}' for name in (
                'ca.pem', 'ca.key', 'server.pem', 'server.key', 'client.pem',
                'client.key')}
        self._openssl('req', '-x509', '-newkey', 'rsa:2048', '-nodes',
                      '-subj', '/CN=authority', '-days', '2',
                      '-addext', 'keyUsage=critical,keyCertSign,cRLSign',
                      '-keyout', 'ca.key', '-out', 'ca.pem')
        for name in 'server', 'client':
            self._openssl('req', '-newkey', 'rsa:2048', '-nodes',
                          '-subj', self.subject, '-keyout',
                          f'{name}.key', '-out', f'{name}.csr')
            (self.directory / f'{name}.ext').write_text(
                f'subjectAltName=IP:{serving.ADDRESS}\n'
                f'extendedKeyUsage=serverAuth,clientAuth\n')
            self._openssl('x509', '-req', '-in', f'{name}.csr', '-CA',
                          'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial',
                          '-days', '2', '-extfile', f'{name}.ext',
                          '-out', f'{name}.pem')

    def _openssl(self, *args):
        processes.run([self._find('openssl', os.get_exec_path()), *args],
                      self.directory)


class TlsTestCase(base.TestCase):

    def sync(self, text):
        """Prepare a store with a configuration; return the error."""
        path = self.directory / 'cellsched.conf'
        path.write_text(text)
        error = io.StringIO()
        if app.Manage(io.StringIO(), error).run(
                [f'--config-file={path}', 'claims_db', 'sync']):
            return error.getvalue() or 'no text'
        return ''

    def assertRefused(self, text):
        error = self.sync(text)
        self.assertTrue(error)
        for part in 'Traceback', 'secret', 'Error:\n':
            self.assertNotIn(part, error)


class TlsEtcd(Certificates, etcd.Etcd):
    """A member that requires TLS and a client's certificate."""

    # With users, a gateway of etcd refuses certificates with a common name.
    subject = '/O=cellsched'

    def prepare(self):
        self.make_certificates()

    def _member(self, number):
        process = super()._member(number)
        process.args = [
            each.replace('http://', 'https://') if 'client-urls' in each
            else each for each in process.args]
        process.args += [
            '--client-cert-auth', f'--trusted-ca-file={self.files["ca.pem"]}',
            f'--cert-file={self.files["server.pem"]}',
            f'--key-file={self.files["server.key"]}']
        return process

    def client(self, number=0):
        client = etcd3gw.Etcd3Client(
            serving.ADDRESS, self.port[f'client{number}'], 'https',
            self.files['ca.pem'], self.files['client.key'],
            self.files['client.pem'], 10, api_path='/v3/')
        # Authorities of the environment would replace that of the test.
        client.session.trust_env = False
        return client


class TestEtcd(TlsTestCase):

    def test_store_connects_with_a_certificate_and_a_password(self):
        server = self.own(TlsEtcd)
        admin = server.client()
        for path, body in (
                ('user/add', {'name': 'root', 'password': 'secret'}),
                ('user/grant', {'user': 'root', 'role': 'root'}),
                ('enable', {})):
            admin.post(admin.get_url(f'auth/{path}'), json=body)
        url = server.url('claims')
        tls = url.replace('etcd://', 'etcds://')
        files = server.files
        options = '\n'.join((
            '[etcd]', 'retry_timeout = 0.1', f'cafile = {files["ca.pem"]}'))
        client = '\n'.join((
            '', f'certfile = {files["client.pem"]}',
            f'keyfile = {files["client.key"]}'))
        claims = '[claims]\nstore = etcd\nconnection = {}\n'
        user = '\nusername = root\npassword = secret\n'

        self.assertEqual('', self.sync(
            claims.format(tls) + options + client + user))

        for text in (claims.format(url) + options + client + user,
                     claims.format(tls) + options + user,
                     claims.format(tls) + options + client,
                     claims.format(tls) + '[etcd]\nretry_timeout = 0.1'
                     + client + user):
            self.assertRefused(text)


class TlsCassandra(Certificates, cassandra.Cassandra):
    """A node that requires TLS, a client's certificate and a password."""

    def prepare(self):
        super().prepare()
        self.make_certificates()
        # Cassandra reads a key and its certificates from one file.
        for name in 'server', 'client':
            (self.directory / f'{name}.both').write_text(''.join(
                (self.directory / f'{name}.{part}').read_text()
                for part in ('key', 'pem')))

    def further_settings(self):
        return f'''
authenticator: PasswordAuthenticator
client_encryption_options:
  enabled: true
  optional: false
  require_client_auth: true
  ssl_context_factory:
    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory
  keystore: {self.directory}/server.both
  truststore: {self.files["ca.pem"]}
'''


@profile.full_only('a node takes long to start; the options are tested in '
                   'tests.unit.claims.cassandra.test_options')
class TestCassandra(TlsTestCase):

    def test_store_connects_with_a_certificate_and_a_password(self):
        server = self.own(TlsCassandra)
        files = server.files
        place = server.place('claims').partition('://')[2]
        text = (
            '[claims]\nstore = cassandra\nconnection = {}://{}' + place
            + '\n[cassandra]\nretry_timeout = 0.1\nreplication_factor = 1\n')
        trust = f'cafile = {files["ca.pem"]}\n'
        client = (f'certfile = {files["client.pem"]}\n'
                  f'keyfile = {files["client.key"]}\n')
        user = 'cassandra:cassandra@'

        def is_ready():
            return not self.sync(
                text.format('cassandras', user) + trust + client)

        # The account is made some time after the node listens.
        processes.wait_until(is_ready, 'the account of the superuser')
        for refused in (
                text.format('cassandra', user) + trust + client,
                text.format('cassandras', user) + trust,
                text.format('cassandras', user) + client,
                text.format('cassandras', 'cassandra:secret@') + trust
                + client,
                text.format('cassandras', '') + trust + client):
            self.assertRefused(refused)


class TlsPostgreSQL(Certificates, servers.PostgreSQL):
    """A server where one account must use TLS and a certificate."""

    def prepare(self):
        self.make_certificates()
        super().prepare()
        (self.directory / 'data' / 'pg_hba.conf').write_text(
            'host all postgres 127.0.0.1/32 trust\n'
            'hostssl all cellsched 127.0.0.1/32 cert\n')
        processes.run(['chmod', '-R', 'go-rwx', str(self.directory)],
                      self.directory)
        with contextlib.suppress(processes.ProcessFailed):
            processes.run(['chown', '-R', 'postgres', str(self.directory)],
                          self.directory)

    def make_processes(self):
        [process] = super().make_processes()
        process.args += [
            '-c', 'ssl=on', '-c', f'ssl_ca_file={self.files["ca.pem"]}',
            '-c', f'ssl_cert_file={self.files["server.pem"]}',
            '-c', f'ssl_key_file={self.files["server.key"]}']
        return [process]


@profile.full_only('the options are those of the library; the page on '
                   'security has them')
class TestSql(TlsTestCase):

    def check(self, plain, parameters, required):
        text = '[claims]\nconnection = '
        joined = '&'.join(parameters.values())
        self.assertEqual('', self.sync(f'{text}{plain}?{joined}'))
        for name in required:
            joined = '&'.join(value for key, value in parameters.items()
                              if key != name)
            self.assertRefused(f'{text}{plain}?{joined}')

    def test_postgresql(self):
        server = self.own(TlsPostgreSQL)
        server.url('claims')
        for statement in ('CREATE ROLE cellsched LOGIN',
                          'ALTER DATABASE claims OWNER TO cellsched'):
            server.execute(statement)
        place = f'{serving.ADDRESS}:{server.port["sql"]}/claims'
        files = server.files
        for driver in 'psycopg2', 'psycopg':
            self.check(f'postgresql+{driver}://cellsched@{place}', {
                'mode': 'sslmode=verify-full',
                'ca': f'sslrootcert={files["ca.pem"]}',
                'cert': f'sslcert={files["client.pem"]}',
                'key': f'sslkey={files["client.key"]}'}, ['ca', 'cert'])

    def test_mariadb(self):
        server = self.own(TlsMariaDB)
        server.url('claims')
        place = f'{serving.ADDRESS}:{server.port["sql"]}/claims'
        files = server.files
        self.check(f'mysql+pymysql://cellsched:secret@{place}', {
            'ca': f'ssl_ca={files["ca.pem"]}',
            'cert': f'ssl_cert={files["client.pem"]}',
            'key': f'ssl_key={files["client.key"]}'}, ['cert'])


class TlsMariaDB(Certificates, mariadb.MariaDB):
    """A server where one account must use TLS and a certificate."""

    def prepare(self):
        self.make_certificates()
        super().prepare()
        with (self.directory / 'account.sql').open('a') as file:
            file.write(f"CREATE USER IF NOT EXISTS 'cellsched'@'"
                       f"{serving.ADDRESS}' IDENTIFIED BY 'secret' "
                       'REQUIRE X509;\n'
                       f"GRANT ALL ON *.* TO 'cellsched'@'{serving.ADDRESS}'"
                       ';\n')

    def _settings(self):
        settings = super()._settings()
        return {**settings, 'ssl-ca': self.files['ca.pem'],
                'ssl-cert': self.files['server.pem'],
                'ssl-key': self.files['server.key']}


class TlsPlacement(Certificates, placement.Placement):
    """Placement that requires TLS, a client's certificate and a token."""

    def prepare(self):
        self.make_certificates()
        super().prepare()

    def make_processes(self):
        [process] = super().make_processes()
        process.args += [
            '--certfile', self.files['server.pem'],
            '--keyfile', self.files['server.key'],
            '--ca-certs', self.files['ca.pem'], '--cert-reqs', '2']
        process.stop_signal = signal.SIGTERM
        return [process]

    def url(self, name=''):
        return f'https://{serving.ADDRESS}:{self.port["http"]}'

    def _answers(self):
        context = ssl.create_default_context(cafile=self.files['ca.pem'])
        context.load_cert_chain(
            self.files['client.pem'], self.files['client.key'])
        try:
            urllib.request.urlopen(
                self.url(), timeout=60, context=context).close()
        except OSError:
            return False
        return True


@profile.full_only('the options are those of keystoneauth1')
class TestPlacement(TlsTestCase):

    def test_store_connects_with_a_certificate_and_a_token(self):
        server = self.own(TlsPlacement)
        files = server.files
        text = '\n'.join((
            '[claims]', 'store = placement', '[placement]',
            'auth_type = admin_token', f'endpoint = {server.url()}',
            f'endpoint_override = {server.url()}', 'retry_timeout = 0.1', ''))
        trust = f'cafile = {files["ca.pem"]}\n'
        client = (f'certfile = {files["client.pem"]}\n'
                  f'keyfile = {files["client.key"]}\n')

        self.assertEqual('', self.sync(text + 'token = admin\n' + trust
                                       + client))
        for refused in (text + 'token = admin\n' + trust,
                        text + 'token = admin\n' + client):
            self.assertRefused(refused)

# SPDX-License-Identifier: Apache-2.0
"""A Keystone with limits only, on a port of its own."""

import functools
from http import server
import json
import threading
from urllib import parse

from oslo_config import cfg

ENDPOINT, SERVICE, REGION = 'the-endpoint', 'compute-service', 'the-region'
PASSWORD = 'p@ss/word'


class Keystone:
    """Answers requests for limits, and records them.

    :ivar registered: default limits, by their names
    :ivar limits: of projects, by their names
    :ivar broken: whether each answer is an error
    :ivar asked: the last parts of the requested paths
    """

    def __init__(self):
        self.reset()
        self._server = server.ThreadingHTTPServer(
            ('127.0.0.1', 0), functools.partial(_Handler, self))
        self._server.daemon_threads = True
        self.url = f'http://127.0.0.1:{self._server.server_port}/v3'
        threading.Thread(
            target=self._server.serve_forever, daemon=True).start()

    def reset(self):
        self.registered, self.limits, self.asked = {}, {}, []
        self.broken = False

    def answer(self, path, query):
        """Return the body of a path."""
        if path == '/v3':
            return {'version': {
                'id': 'v3.14', 'status': 'stable',
                'links': [{'rel': 'self', 'href': self.url}]}}
        if path == f'/v3/endpoints/{ENDPOINT}':
            return {'endpoint': {
                'id': ENDPOINT, 'service_id': SERVICE, 'region_id': REGION,
                'interface': 'public', 'url': 'http://nowhere'}}
        if path == '/v3/limits/model':
            return {'model': {'name': 'flat', 'description': ''}}
        self.asked.append(path.rpartition('/')[2])
        if (query['service_id'], query['region_id']) != (SERVICE, REGION):
            return {'registered_limits': [], 'limits': []}
        if path == '/v3/registered_limits':
            return {'registered_limits': [
                {'id': name, 'resource_name': name, 'default_limit': limit}
                for name, limit in self.registered.items()]}
        return {'limits': [
            {'id': name, 'resource_name': name, 'resource_limit': limit}
            for name, limit in self.limits.get(
                query['project_id'], {}).items()]}

    def token(self):
        return {'token': {
            'methods': ['password'], 'expires_at': '2999-01-01T00:00:00Z',
            'issued_at': '2026-01-01T00:00:00Z',
            'user': {'id': 'user', 'name': 'cellsched',
                     'domain': {'id': 'default', 'name': 'Default'}},
            'catalog': [{'type': 'identity', 'name': 'keystone', 'id': 'own',
                         'endpoints': [{
                             'id': 'identity', 'interface': 'public',
                             'region': REGION, 'region_id': REGION,
                             'url': self.url}]}]}}


class _Handler(server.BaseHTTPRequestHandler):

    def __init__(self, keystone, *args):
        self._keystone = keystone
        super().__init__(*args)

    def do_GET(self):
        path, _, query = self.path.partition('?')
        if self._keystone.broken:
            self._send(503, {'error': {'message': 'out of order'}})
        elif path != '/v3' and self.headers['X-Auth-Token'] != 'let-me-in':
            self._send(401, {'error': {'message': 'who are you?'}})
        else:
            self._send(200, self._keystone.answer(
                path, dict(parse.parse_qsl(query))))

    def do_POST(self):
        login = json.loads(self.rfile.read(int(
            self.headers['Content-Length'])))
        user = login['auth']['identity']['password']['user']
        if self._keystone.broken or user['password'] != PASSWORD:
            self._send(401, {'error': {'message': 'wrong password'}})
        else:
            self._send(201, self._keystone.token(),
                       {'X-Subject-Token': 'let-me-in'})

    def _send(self, status, body, headers=()):
        sent = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**dict(headers), 'Content-Length': len(sent),
                            'Content-Type': 'application/json'}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *args):
        pass


@functools.cache
def shared():
    """Return the Keystone of this process: oslo.limit keeps a connection."""
    return Keystone()


def options(url):
    """Return the lines of a configuration file."""
    return (f'[quota]\ndriver = nova.quota.UnifiedLimitsDriver\n'
            f'[oslo_limit]\nendpoint_id = {ENDPOINT}\nauth_type = password\n'
            f'auth_url = {url}\nusername = cellsched\n'
            f'password = {PASSWORD}\nuser_domain_id = default\n'
            f'system_scope = all\n')


def forget():
    """Clear the global configuration of the process."""
    cfg.CONF.clear()


def read(path):
    """Read a file as the global configuration, as a host application does.

    :returns: a function that returns the names of the files
    """
    cfg.CONF([], default_config_files=[str(path)], default_config_dirs=[])
    return lambda: cfg.CONF.config_file

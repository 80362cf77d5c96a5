# SPDX-License-Identifier: Apache-2.0
"""Claims in Placement, and the same requests without this project."""

import contextlib
import json
import pathlib
import subprocess
import sys

import psycopg2
import requests

from peers.usage_queries import OVERSOLD
from stores import base

# The test suite has the code to find out what is installed.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from tests.integration.nova import caller  # noqa: E402
from tests.integration import servers  # noqa: E402

OPTIONS = """\
[claims]
store = placement
[placement]
auth_type = admin_token
token = admin
endpoint = {url}
endpoint_override = {url}
"""

HEADERS = {'X-Auth-Token': 'admin',
           'OpenStack-API-Version': 'placement 1.39'}

#: The error code if a provider changed meanwhile; the request can be repeated.
CONCURRENT = 'placement.concurrent_update'


class Placement(base.Kind):

    #: Options of Placement.
    options = ''

    @contextlib.contextmanager
    def served(self):
        python = caller.python()
        servers.PostgreSQL()
        script = (pathlib.Path(__file__).parents[1] / 'peers'
                  / 'placement_server.py')
        with subprocess.Popen(
                [python, script, '--options', self.options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, text=True) as process:
            try:
                line = process.stdout.readline()
                if not line:
                    raise RuntimeError('Placement does not start')
                answer = json.loads(line)
                yield {**answer, 'options': OPTIONS.format(url=answer['url'])}
            finally:
                process.stdin.close()
                process.wait(120)

    def version(self, address):
        return address['version']

    def counting(self, parts):
        from cellsched.claims.placement import client

        lost = []

        def notice(request, answer):
            if (request.path.startswith('/allocations')
                    and request.method in ('PUT', 'POST')
                    and answer.status == 409
                    and is_concurrent(answer.body)):
                lost.append(request.path)

        base.watch(client.KeystoneClient, notice)
        return base.CountingClaims(parts.claims, lost=lambda: len(lost))

    def plain(self, address):
        return Plain(address['url'])

    @contextlib.contextmanager
    def observer(self, address):
        with contextlib.closing(psycopg2.connect(
                address['database'].replace('+psycopg2', ''))) as connection:
            connection.autocommit = True

            def oversold():
                with connection.cursor() as cursor:
                    cursor.execute(OVERSOLD)
                    [units] = cursor.fetchone()
                return round(units)

            yield oversold


class PlacementNoRetry(Placement):
    """Placement that does not repeat a conflicting update."""

    options = '[placement]\nallocation_conflict_retry_count = 1\n'


class Plain(base.Plain):
    """One request for each consumer."""

    def __init__(self, url):
        super().__init__()
        self._url = url
        self._session = requests.Session()
        self._session.headers.update(HEADERS)

    def claim(self, takes):
        for take in takes:
            while not self._has_taken(take):
                self.lost += 1

    def _has_taken(self, take):
        answer = self._session.put(
            f'{self._url}/allocations/{take.consumer}', json={
                'allocations': {take.provider: {'resources': take.resources}},
                'project_id': base.PROJECT, 'user_id': base.USER,
                'consumer_generation': None, 'consumer_type': 'INSTANCE'})
        if answer.status_code == 409:
            if is_concurrent(answer.json()):
                return False
            raise base.Refused()
        answer.raise_for_status()
        return True

    def release(self, takes):
        for take in takes:
            self._session.delete(
                f'{self._url}/allocations/{take.consumer}').raise_for_status()

    def close(self):
        self._session.close()


def is_concurrent(body):
    return any(error.get('code') == CONCURRENT for error in body['errors'])

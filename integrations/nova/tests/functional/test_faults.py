# SPDX-License-Identifier: Apache-2.0
"""Faults of Placement and of a cell's database, in a whole Nova.

Nova's services run in one process with this scheduler. The faults of Placement
are in the transport below all clients.
"""

import contextlib
import functools
import io
import itertools
import json
import math
import threading

import fixtures
import nova.conf
from nova import context as nova_context
from nova import service as nova_service
from oslo_db import exception as db_exc
import requests
from requests import adapters
import sqlalchemy as sa
import urllib3

from cellsched_nova import manager
from cellsched_nova import options
from tests.functional import base

CONF = nova.conf.CONF

SLOW_S = 0.1

#: Timeouts of claims that shall fail, and that shall succeed, in seconds.
SHORT_S, LONG_S = 0.5, 120.0


def refused(request, pass_on):
    """Refuse the connection."""
    raise requests.ConnectionError(urllib3.exceptions.MaxRetryError(
        None, request.url, urllib3.exceptions.NewConnectionError(
            'placement', 'Connection refused')), request=request)


def dropped(request, pass_on):
    """Close the connection before the request is executed."""
    raise requests.ConnectionError(urllib3.exceptions.ProtocolError(
        'Connection aborted.', ConnectionResetError(104, 'reset')),
        request=request)


def late(request, pass_on):
    """Execute the request, and answer after the client's timeout."""
    pass_on()
    raise requests.ReadTimeout('Read timed out.', request=request)


def never(request, pass_on):
    """Neither execute nor answer the request."""
    raise requests.ReadTimeout('Read timed out.', request=request)


def answering(status, body=b'', kind='text/html'):
    """Return a fault with this answer that executes nothing."""
    def fault(request, pass_on):
        answer = requests.Response()
        answer.status_code = status
        answer.headers['Content-Type'] = kind
        answer.url, answer.request = request.url, request
        answer.raw = io.BytesIO(body)
        return answer
    return fault


def half(request, pass_on):
    """Answer with status 200 and the first half of the body."""
    content = pass_on().content
    return answering(200, content[:len(content) // 2], 'application/json')(
        request, pass_on)


def slow(request, pass_on):
    """Answer slowly, but before the timeout."""
    threading.Event().wait(SLOW_S)
    return pass_on()


broken = answering(500, b'<h1>Internal Server Error</h1>')
overloaded = answering(503, b'<h1>Service Unavailable</h1>')
conflicting = answering(409, (
    b'{"errors": [{"status": 409, "code": "placement.concurrent_update", '
    b'"detail": "Inventory and/or allocations changed while attempting to '
    b'allocate"}]}'), 'application/json')


def any_request(request):
    return True


def readings(request):
    """Return whether only a scheduler sends this request."""
    return request.path_url.partition('?')[0].endswith(
        ('/resource_providers', '/allocation_candidates'))


def writes(request):
    return request.method != 'GET'


def allocations(request):
    return writes(request) and '/allocations' in request.path_url


def claims(request):
    """Return whether the request is a claim, with a guard."""
    return allocations(request) and 'CELLSCHED_GUARD' in str(request.body)


def additions(request):
    """Return whether the request adds a claim to other allocations."""
    return claims(request) and any(
        len(each['allocations']) > 1
        for each in json.loads(request.body).values())


@contextlib.contextmanager
def named_case(*names):
    """Add the tested case to failures."""
    try:
        yield
    except Exception as exc:
        exc.add_note(', '.join(names))
        raise


class Wire:
    """The transport to Placement, with temporary faults.

    :param endpoint: URL of Placement
    """

    def __init__(self, endpoint):
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._faults = []

    def fail(self, *faults):
        """Replace the faults of the next requests.

        :param faults: fault, affected requests and number of faults, in order
        """
        with self._lock:
            self._faults = [list(each) for each in faults]

    def send(self, adapter, request, *args, **named):
        """Replace the method of a transport adapter."""
        pass_on = functools.partial(
            adapters.HTTPAdapter.send, adapter, request, *args, **named)
        fault = (self._next(request)
                 if request.url.startswith(self._endpoint) else None)
        return pass_on() if fault is None else fault(request, pass_on)

    def _next(self, request):
        with self._lock:
            while self._faults and not self._faults[0][2]:
                self._faults.pop(0)
            if not self._faults or not self._faults[0][1](request):
                return None
            self._faults[0][2] -= 1
            return self._faults[0][0]


class TestCase(base.TestCase):

    def setUp(self):
        options.register_opts(CONF)
        self.flags(claim_timeout=LONG_S, decision_retention=0,
                   no_valid_host_text='cellsched', group='cellsched')
        self.addCleanup(nova_service.SERVICE_MANAGERS.update,
                        dict(nova_service.SERVICE_MANAGERS))
        manager.install_manager()
        super().setUp()
        self.wire = Wire(self.placement.fixture.endpoint)
        self.useFixture(fixtures.MonkeyPatch(
            'keystoneauth1.session.TCPKeepAliveAdapter.send', self.wire.send))
        self.groups = self._create_flavor(
            extra_spec={'resources1:VCPU': '1'}, **self.small)

    @contextlib.contextmanager
    def giving_up_soon(self):
        """Set a short claim timeout."""
        self.flags(claim_timeout=SHORT_S, group='cellsched')
        yield
        self.flags(claim_timeout=LONG_S, group='cellsched')

    def tried(self, faults, by_all):
        """Yield pairs of a fault and a way, both with their names.

        :param by_all: names of faults to combine with all ways; each other
            fault gets the next way, because a build takes seconds
        """
        turns = itertools.cycle(self.ways().items())
        for name, fault in faults.items():
            ways = [*self.ways().items()] if name in by_all else [next(turns)]
            for way, post in ways:
                yield name, fault, way, post

    def ways(self):
        """Return functions that request servers, by the name of the way."""
        return {
            'columns': self.post,
            'allocation candidates': functools.partial(
                self.post, flavor=self.groups),
            'several': functools.partial(self.post, 2),
        }


class TestShortFaults(TestCase):
    """Faults shorter than the timeout are hidden from users."""

    FAULTS = {
        'no connection': ((refused, any_request, 3),),
        'restart': ((dropped, any_request, 1), (refused, any_request, 3)),
        'lost reply': ((late, allocations, 1),),
        'lost request': ((never, allocations, 1),),
        'lost replies': ((late, any_request, 3),),
        '500': ((broken, any_request, 3),),
        '503': ((overloaded, any_request, 3),),
        '409': ((conflicting, writes, 3),),
        'half an answer': ((half, readings, 3),),
        'slow': ((slow, any_request, math.inf),),
    }

    def test_servers_are_built_after_a_short_fault(self):
        for name, faults, way, post in self.tried(
                self.FAULTS, {'no connection', 'lost reply'}):
            with named_case(name, way):
                self.wire.fail(*faults)
                self.wait_for(post(), 'ACTIVE')
                self.wire.fail()
                self.assertNoLeaks()


class TestLastingFaults(TestCase):
    """Lasting faults are reported to callers, and leave no allocations."""

    REFUSED = {
        'no connection': ('ConnectFailure', (
            (refused, any_request, math.inf),)),
        'lost requests': ('ConnectTimeout', ((never, any_request, math.inf),)),
        'lost reply, and down': ('Connect(Failure|Timeout)', (
            (late, allocations, 1), (refused, any_request, math.inf))),
        '500': ('500', ((broken, any_request, math.inf),)),
        '503': ('503', ((overloaded, any_request, math.inf),)),
        '409': ('change', ((conflicting, writes, math.inf),)),
    }

    UNREADABLE = {
        'no connection': ('ConnectFailure', refused),
        '503': ('503', overloaded),
        'half an answer': ('is not JSON', half),
    }

    def assertRefused(self, reason, servers):
        for server in self.wait_for(servers, 'ERROR'):
            message = server['fault']['message']
            self.assertRegex(message, '^No valid host was found')
            self.assertRegex(message, reason)

    def test_decisions_use_the_last_known_columns(self):
        self.wait_for(self.post(), 'ACTIVE')
        for name, (reason, fault) in self.UNREADABLE.items():
            ways = self.ways()
            with named_case(name):
                self.wire.fail((fault, readings, math.inf))
                with self.giving_up_soon():
                    self.assertRefused(
                        reason, ways.pop('allocation candidates')())
                for post in ways.values():
                    self.wait_for(post(), 'ACTIVE')
                self.wire.fail()
                self.assertNoLeaks()

    def test_unread_hosts_are_not_reported_as_full(self):
        self.wire.fail((overloaded, readings, math.inf))

        with self.giving_up_soon():
            self.assertRefused('answered (with )?503', self.post())

    def test_callers_receive_the_reason(self):
        for name, (reason, faults), way, post in self.tried(
                self.REFUSED, {'no connection', 'lost reply, and down'}):
            with named_case(name, way):
                with self.giving_up_soon():
                    self.wire.fail(*faults)
                    self.assertRefused(reason, post())
                self.wire.fail()
                self.wait_for(self.post(), 'ACTIVE')
                self.assertNoLeaks()


class TestCell(TestCase):
    """The database of a cell is unreachable."""

    NUMBER_OF_CELLS = 2

    def start_computes(self):
        self._start_compute('host1', cell_name='cell1')
        for host in base.HOSTS[1:]:
            self._start_compute(host, cell_name='cell2')

    @contextlib.contextmanager
    def down(self):
        """Make the database of the second cell unreachable."""
        context = nova_context.get_admin_context()
        with nova_context.target_cell(
                context, self.cell_mappings['cell2']) as targeted:
            engine = targeted.db_connection.writer.get_engine()

        def refuse(*arguments):
            raise db_exc.DBConnectionError('no connection to the database')

        sa.event.listen(engine, 'before_cursor_execute', refuse)
        try:
            yield
        finally:
            sa.event.remove(engine, 'before_cursor_execute', refuse)

    def hosts(self):
        return {each['OS-EXT-SRV-ATTR:host'] for each in (
            self.api.get_servers())}

    def test_servers_use_other_cells_until_the_cell_answers(self):
        self.wait_for(self.post(2), 'ACTIVE')
        with self.down():
            for way, post in self.ways().items():
                with named_case(way):
                    for server in self.wait_for(post(), 'ACTIVE'):
                        self.assertEqual(
                            'host1', server['OS-EXT-SRV-ATTR:host'])

        # The last reading of the cell may have failed a moment ago.
        for _ in range(base.LOOKS):
            self.wait_for(self.post(3), 'ACTIVE')
            if self.hosts() == set(base.HOSTS):
                break
        else:
            self.fail(f'the servers stay on {self.hosts()}')
        self.assertNoLeaks()

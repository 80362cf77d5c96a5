# SPDX-License-Identifier: Apache-2.0
"""The client of Cassandra, over cassandra-driver."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import os
import ssl
from typing import Any
import warnings

from oslo_config import cfg

from cellsched.claims.cassandra import options
from cellsched.claims.cassandra import requests
from cellsched.claims import remote
from cellsched.clock import Clock
from cellsched import exception

with warnings.catch_warnings():
    # The driver warns about an optional library.
    warnings.simplefilter('ignore')
    import cassandra
    from cassandra import auth
    from cassandra import cluster
    from cassandra.io import libevreactor
    from cassandra import policies
    from cassandra.protocol import SyntaxException
    from cassandra import query

#: Maximum number of concurrent requests of one call.
_AT_ONCE = 32

#: Errors after which the request is known not to be executed.
_NOT_DONE = (cassandra.Unavailable, cluster.NoHostAvailable)

#: Errors of invalid or forbidden requests.
_WRONG = (cassandra.InvalidRequest, cassandra.Unauthorized,
          cassandra.ConfigurationException, cassandra.UnsupportedOperation)


class CassandraClient:
    """Sends requests to a cluster; connects on demand.

    A forked process opens its own connections. Requests are not repeated
    here, and no timestamps of this machine are used: the server orders
    conditional writes.

    :param address: the first nodes to connect to
    :param conf: the options of ``[cassandra]``
    """

    def __init__(
        self, address: options.Address, conf: cfg.ConfigOpts,
        clock: Clock,
    ) -> None:
        self._address = address
        self._conf = conf
        self._clock = clock
        self._lock = clock.lock()
        self._pid = 0
        self._cluster: Any = None
        self._nodes: NodeOrder | None = None
        self._session: Any = None
        self._prepared: dict[tuple[str, bool], Any] = {}
        self._tls = tls_context(conf) if address.tls else None
        self._serial = getattr(
            cassandra.ConsistencyLevel, conf.serial_consistency_level)

    def send(self, request: Any) -> Any:
        """Return the answer to a request.

        :raises cellsched.claims.remote.NotSent: it was not executed
        :raises cellsched.claims.remote.OutcomeUnknown: it may have been
            executed
        :raises cellsched.exception.DatabaseError: the server rejects it as
            invalid, or the user has no permission
        """
        if isinstance(request, requests.Together):
            return self._send_all(request.requests)
        return _translated(lambda: self._begin(request)())

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        with self._lock:
            ended, self._cluster, self._session = self._cluster, None, None
            self._prepared = {}
        if ended is not None and self._pid == os.getpid():
            ended.shutdown()

    def _send_all(self, asked: Sequence[Any]) -> list[Any]:
        answers: list[Any] = []
        for start in range(0, len(asked), _AT_ONCE):
            begun = [
                _caught(lambda: self._begin(each))
                for each in asked[start:start + _AT_ONCE]]
            answers += [each if isinstance(each, Exception)
                        else _caught(each) for each in begun]
        return answers

    # Connections.

    def _connected(self) -> Any:
        """Return the session of this process."""
        if self._session is not None and self._pid == os.getpid():
            return self._session
        with self._lock:
            if self._session is None or self._pid != os.getpid():
                self._prepared = {}
                nodes = NodeOrder(self._conf, self._clock)
                cluster = make_cluster(
                    self._address, self._conf, nodes, self._tls)
                try:
                    session = cluster.connect()
                except BaseException:
                    cluster.shutdown()
                    raise
                # Timestamps come from the server, as clocks may differ.
                session.use_client_timestamp = False
                self._session, self._nodes = session, nodes
                self._cluster, self._pid = cluster, os.getpid()
            return self._session

    # Statements.

    def _begin(self, request: Any) -> Callable[[], Any]:
        """Send a request; return a function that waits for the answer."""
        if isinstance(request, requests.Describe):
            return self._describe
        if isinstance(request, requests.Create):
            return lambda: _create(
                self._connected(), self._address.keyspace, request.copies)
        return self._execute(request.query())

    def _execute(self, asked: requests.Query) -> Callable[[], Any]:
        """Send a request; return a function that waits for the answer."""
        values = asked.values
        prepared = self._make_prepared(
            asked.text, asked.is_serial, asked.is_paged)
        if asked.more:
            batch = query.BatchStatement()
            batch.add(prepared, values)
            for text, more in asked.more:
                batch.add(self._make_prepared(text), more)
            prepared, values = batch, ()
        future = self._connected().execute_async(prepared, values or None)

        def wait() -> Any:
            with self._avoiding_nodes():
                return asked.answer(list(future.result()))

        return wait

    @contextlib.contextmanager
    def _avoiding_nodes(self) -> Iterator[None]:
        """Use a node last for some time if its answer does not come."""
        try:
            yield
        except cassandra.OperationTimedOut as exc:
            if self._nodes is not None and exc.last_host is not None:
                self._nodes.avoid(exc.last_host)
            raise

    def _make_prepared(
        self, text: str, is_serial: bool = False, is_paged: bool = True
    ) -> Any:
        session = self._connected()
        found = self._prepared.get((text, is_serial))
        if found is None:
            with self._avoiding_nodes():
                found = session.prepare(text.format(self._address.keyspace))
            if is_serial:
                found.consistency_level = self._serial
            if not is_paged:
                found.fetch_size = None
            self._prepared[text, is_serial] = found
        return found

    # Description.

    def _describe(self) -> requests.KeyspaceDescription:
        keyspace = self._address.keyspace
        session = self._connected()
        version = _version(session)
        missing = _missing(session, keyspace)
        if missing:
            return requests.KeyspaceDescription(version, missing)
        identity = self._execute(requests.IDENTITY)()
        if not identity:
            return requests.KeyspaceDescription(
                version, (f'{keyspace}.store',))
        return requests.KeyspaceDescription(
            version, (), identity, self._can_add())

    def _can_add(self) -> bool:
        try:
            self._execute(requests.PROBE)()
        except (cassandra.InvalidRequest, SyntaxException):
            return False
        return True


def _translated(send: Callable[[], Any]) -> Any:
    """Call the driver, and translate its errors."""
    try:
        return send()
    except exception.CellschedException:
        raise
    except _NOT_DONE as exc:
        _check_login(exc)
        raise remote.NotSent(_reason(exc)) from exc
    except _WRONG as exc:
        raise exception.ClaimStoreFailed(reason=_reason(exc)) from exc
    except Exception as exc:
        # Any other error of the driver may come after an execution.
        raise remote.OutcomeUnknown(_reason(exc)) from exc


def _caught(send: Callable[[], Any]) -> Any:
    try:
        return _translated(send)
    except (remote.NotSent, remote.OutcomeUnknown) as exc:
        return exc


def _check_login(exc: Exception) -> None:
    errors = getattr(exc, 'errors', {})
    for error in errors.values() if isinstance(errors, dict) else ():
        if isinstance(error, cassandra.AuthenticationFailed):
            raise exception.ConfigurationInvalid(
                field='[claims] connection',
                problem='Cassandra refused the login',
                expected='the user and the password of an account'
            ) from exc


def _reason(exc: Exception) -> str:
    return f'{type(exc).__name__}: {exc!s:.300}'


#: Seconds for which a node is used last after a timeout.
_HANGS_S = 30.0


class NodeOrder(policies.TokenAwarePolicy):
    """The order of the nodes for a partition.

    All clients use the same node of a partition first, which causes fewer
    conflicts. Nodes that did not answer in time come last; the driver itself
    would use them until a heartbeat is missing, which takes up to a minute.
    """

    def __init__(self, conf: cfg.ConfigOpts, clock: Clock) -> None:
        super().__init__(
            policies.DCAwareRoundRobinPolicy(conf.local_datacenter)
            if conf.local_datacenter else policies.RoundRobinPolicy(),
            shuffle_replicas=False)
        self._clock = clock
        self._hangs_until: dict[Any, float] = {}

    def avoid(self, node: Any) -> None:
        """Use a node last for some time, as it did not answer."""
        self._hangs_until[node] = self._clock.monotonic() + _HANGS_S

    def make_query_plan(
        self, working_keyspace: Any = None, query: Any = None
    ) -> Iterator[Any]:
        now, hanging = self._clock.monotonic(), []
        for node in super().make_query_plan(working_keyspace, query):
            if now < self._hangs_until.get(node, now):
                hanging.append(node)
            else:
                yield node
        yield from hanging


def tls_context(conf: cfg.ConfigOpts) -> ssl.SSLContext:
    """Return the settings of connections with TLS.

    :param conf: the options of ``[cassandra]``
    :raises cellsched.exception.ConfigurationInvalid: a file is invalid
    """
    try:
        context = ssl.create_default_context(cafile=conf.cafile)
        context.check_hostname = conf.verify_hostname
        if conf.certfile:
            context.load_cert_chain(conf.certfile, conf.keyfile)
    except OSError as exc:
        raise exception.ConfigurationInvalid(
            field='[cassandra] cafile, certfile or keyfile',
            problem=f'a file cannot be used: {exc.strerror or exc!s:.200}',
            expected='readable files in PEM format') from None
    return context


def make_cluster(
    address: options.Address, conf: cfg.ConfigOpts, nodes: NodeOrder,
    tls: ssl.SSLContext | None = None,
) -> Any:
    """Return a cluster that is not connected yet.

    :param conf: the options of ``[cassandra]``
    :param tls: settings of connections with TLS; None for none
    """
    return cluster.Cluster(
        [cluster.DefaultEndPoint(host, port) for host, port in address.hosts],
        port=address.hosts[0][1], ssl_context=tls,
        connection_class=libevreactor.LibevConnection,
        auth_provider=address.user and auth.PlainTextAuthProvider(
            address.user, address.password),
        execution_profiles={
            cluster.EXEC_PROFILE_DEFAULT: _profile(conf, nodes)},
        # A node without an answer would block each statement. A node that
        # lacks a statement reports it, and the driver prepares it there.
        prepare_on_all_hosts=False,
        connect_timeout=conf.timeout,
        control_connection_timeout=conf.timeout,
        reconnection_policy=policies.ConstantReconnectionPolicy(
            1.0, max_attempts=None))


def _profile(conf: cfg.ConfigOpts, nodes: NodeOrder) -> Any:
    level = cassandra.ConsistencyLevel
    return cluster.ExecutionProfile(
        load_balancing_policy=nodes,
        # The other policies repeat conditional writes of unknown outcome.
        retry_policy=policies.FallthroughRetryPolicy(),
        consistency_level=getattr(level, conf.consistency),
        serial_consistency_level=getattr(
            level, conf.serial_consistency_level),
        request_timeout=conf.timeout, row_factory=query.dict_factory)


#: Columns with names in the tables of the system schema.
_NAMES = {'tables': 'table_name', 'indexes': 'index_name'}

#: The first major release with storage-attached indexes.
_SAI_MIN = 5


def _version(session: Any) -> str:
    """Return the release of the server."""
    [local] = session.execute('SELECT release_version FROM system.local')
    release: str = local['release_version']
    return release


def _missing(session: Any, keyspace: str) -> tuple[str, ...]:
    """Return the missing tables and indexes."""
    existing = {row[name] for kind, name in _NAMES.items()
                for row in session.execute(
                    f'SELECT {name} FROM system_schema.{kind} '
                    'WHERE keyspace_name = %s', [keyspace])}
    return tuple(f'{keyspace}.{name}'
                 for name in (*requests.TABLES, *requests.INDEXES)
                 if name not in existing)


def _create(session: Any, keyspace: str, copies: int) -> None:
    """Create the missing keyspace, tables and indexes."""
    first, _, _ = _version(session).partition('.')
    for text in requests.create(
            keyspace, copies, sai=int(first) >= _SAI_MIN):
        session.execute(text)

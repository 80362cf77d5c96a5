# SPDX-License-Identifier: Apache-2.0
"""RPC servers, and the validation of messages."""

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Sequence
from concurrent import futures
import functools
import inspect
import logging
import math
from typing import Any

import oslo_messaging
from oslo_messaging.rpc import dispatcher as oslo_dispatcher
from oslo_utils import versionutils
from oslo_versionedobjects import exception as ovo_exception

from cellsched.batching import Place
from cellsched.batching import STOP_S
from cellsched.batching import TaskQueue
from cellsched.clock import Clock
from cellsched import context as request_context
from cellsched import exception
from cellsched.objects import base
from cellsched.rpc import client
from cellsched.rpc import local
from cellsched.rpc import serializer
from cellsched.rpc.transport import Transport

LOG = logging.getLogger(__name__)


#: Values of ``[scheduler] remote_exceptions``.
OURS, NOVA = 'cellsched', 'nova'

_NOVA_MODULE = 'nova.exception'


def translation(form: str) -> Callable[[Exception], Exception]:
    """Return the function that translates errors to a form."""
    return {OURS: _as_it_is, NOVA: as_nova}[form]


def as_nova(error: Exception) -> Exception:
    """Return an error in Nova's form, if Nova would send it.

    It has the text for users, without the list of rejections, which Nova's
    callers do not know. A rejected request, a plug-in failure and an uncertain
    host state become NoValidHost, because callers then roll back.
    """
    if isinstance(error, (
            exception.HardwareRequestInvalid, exception.HostStateUncertain,
            exception.InvalidField, exception.PluginFailed)):
        error = exception.NoValidHost(reason=exception.user_text(error))
    if isinstance(error, exception.NoValidHost):
        # NoValidHost and its subclasses have the same names in Nova.
        return _nova(type(error).__name__)(
            exception.user_text(error), code=error.code, reason={
                **error.kwargs, **error.kwargs.get('for_users', {})}['reason'])
    return error


def _as_it_is(error: Exception) -> Exception:
    return error


class _Named(Exception):
    """An error that exists only to be sent."""

    def __init__(self, message: str, **kwargs: Any) -> None:
        super().__init__(message)
        self.kwargs = kwargs


@functools.cache
def _nova(name: str) -> type[_Named]:
    return type(name, (_Named,), {'__module__': _NOVA_MODULE})


Translate = Callable[[Exception], Exception]

#: Errors caused by callers, which the log has in one line.
_OF_CALLERS = (
    oslo_messaging.NoSuchMethod, oslo_messaging.UnsupportedVersion,
    exception.DeadlineExceeded, exception.Invalid,
    ovo_exception.IncompatibleObjectVersion)

#: Maximum number of cached methods, by name and version as callers send them.
_FOUND_MAX = 256

#: The namespace and version of an endpoint without a target.
_DEFAULT_TARGET = oslo_messaging.Target()

#: Maximum interval of heartbeats that a caller may request, in seconds.
_HEARTBEAT_MAX_S = 1e6

#: Tolerance of deadlines in seconds. Both ends read the clock of deadlines
#: over a network.
LATE_S = 1.0

#: The range of valid times, in seconds since 1970.
_TIME_MAX = 1e15

#: Fields of a context that logs show.
_LOGGED = (
    'domain', 'global_request_id', 'project_domain', 'project_id',
    'request_id', 'resource_uuid', 'system_scope', 'tenant', 'user',
    'user_domain', 'user_id')

#: Maximum length of a field that logs show.
NAME_MAX = 255

#: Maximum length of a name from outside in a log line.
_SHOWN_MAX = 80


class Dispatcher(oslo_messaging.RPCDispatcher):
    """Dispatches messages to the methods of endpoints.

    A malformed message, an unknown method, wrong arguments and an expired
    deadline are rejected: the caller gets an error and the log one line.
    Errors of this project are logged in one line too, unless they are safe for
    users; then they are normal answers. Other errors are bugs, logged with a
    traceback.

    :param now: returns seconds since the epoch by the shared clock of
        deadlines; without it there are no deadlines
    :param translate: converts an error for the caller
    """

    def __init__(
        self, endpoints: list[Any], serializer: oslo_messaging.Serializer,
        now: Callable[[], float] | None, translate: Translate,
    ) -> None:
        super().__init__(
            endpoints, serializer, oslo_messaging.DefaultRPCAccessPolicy)
        self._now = now
        self._translate = translate
        # Callers use the same few methods, so cache them.
        self._found = functools.lru_cache(_FOUND_MAX)(self._find)

    def dispatch(self, incoming: Any) -> Any:
        message = incoming.message
        try:
            try:
                self._check(message, incoming.ctxt)
            except Exception:
                # Else the log would name this thread's previous request.
                request_context.RequestContext(overwrite=True)
                raise
            if not _is_interval(incoming.client_timeout):
                incoming.client_timeout = None
            return super().dispatch(incoming)
        except oslo_messaging.ExpectedException as exc:
            error = exc.exc_info[1]
        except (*_OF_CALLERS, exception.CellschedException) as exc:
            error = exc
        method = message.get('method')
        method = shown(method) if isinstance(method, str) else 'a message'
        if isinstance(error, _OF_CALLERS):
            LOG.warning('Refused %s: %s', method, shown(error, 1000))
        elif not getattr(error, 'safe', True):
            LOG.error('%s failed: %s', method, shown(error, 1000))
        raise _expected(self._translate(error))

    def _check(self, message: dict[str, Any], context: Any) -> None:
        """Reject a message that must not reach a method.

        The base class looks the method up again. For a monitored call it
        starts a thread first, which never ends if there is no such method.
        """
        method = message.get('method')
        if not isinstance(method, str):
            raise _invalid('method', 'the name of a method')
        _check_context(context)
        args = message.get('args', {})
        if not isinstance(args, dict):
            raise _invalid('args', 'a mapping of names to values')
        version = message.get('version', '1.0')
        if not isinstance(version, str):
            raise _invalid_version()
        self._check_deadline(context.get('deadline'))
        namespace = message.get('namespace')
        if namespace is not None and not isinstance(namespace, str):
            raise oslo_messaging.NoSuchMethod(shown(method))
        _check_arguments(self._found(namespace, version, method), args)

    def _find(
        self, namespace: str | None, version: str, method: str
    ) -> Callable[..., Any]:
        """Return the function of the method in a message."""
        if not _is_version(version):
            raise _invalid_version()
        unsupported = False
        for endpoint in self.endpoints:
            target: oslo_messaging.Target = getattr(
                endpoint, 'target', None) or _DEFAULT_TARGET
            if (namespace in target.accepted_namespaces
                    and self.access_policy.is_allowed(endpoint, method)
                    and inspect.ismethod(getattr(endpoint, method, None))):
                if versionutils.is_compatible(
                        version, target.version or '1.0'):
                    return getattr(endpoint, method).__func__
                unsupported = True
        if unsupported:
            raise oslo_messaging.UnsupportedVersion(version, method=method)
        raise oslo_messaging.NoSuchMethod(shown(method))

    def _check_deadline(self, deadline: Any) -> None:
        if self._now is None or not _is_time(deadline):
            return
        late_s = self._now() - deadline
        if late_s > LATE_S:
            raise exception.DeadlineExceeded(late_s=round(late_s))


def _is_time(value: Any) -> bool:
    """Return whether a value is a time; infinity and NaN are none."""
    return type(value) in (int, float) and -_TIME_MAX < value < _TIME_MAX


def _is_interval(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < _HEARTBEAT_MAX_S


def _invalid(field: str, expected: str) -> exception.InvalidField:
    return exception.InvalidField(
        where='message', field=field, expected=expected)


def _invalid_version() -> exception.InvalidField:
    return _invalid('version', 'a version such as 4.5')


def is_name(value: Any) -> bool:
    """Return whether a value is a name that logs may contain."""
    return (isinstance(value, str) and len(value) <= NAME_MAX
            and value.isprintable())


def _check_context(context: Any) -> None:
    if not isinstance(context, dict):
        raise _invalid('context', 'a mapping of names to values')
    for name in _LOGGED:
        value = context.get(name)
        if value is not None and not is_name(value):
            raise _invalid(f'context.{name}',
                           f'a string of at most {NAME_MAX} characters')


def _is_version(text: str) -> bool:
    if len(text) > 20:
        return False
    parts = text.split('.')
    return len(parts) in (2, 3) and all(
        part.isascii() and part.isdigit() for part in parts)


def _check_arguments(function: Callable[..., Any], args: Any) -> None:
    known, required = _parameters(function)
    for name in args:
        if known is not None and name not in known:
            raise exception.InvalidField(
                where=function.__name__, field=shown(name),
                problem='unknown argument')
    for name in required:
        if name not in args:
            raise exception.InvalidField(
                where=function.__name__, field=name,
                problem='the argument is missing')


@functools.lru_cache(256)
def _parameters(
    function: Callable[..., Any]
) -> tuple[frozenset[str] | None, list[str]]:
    """Return the parameters of a method, and the required ones.

    None means that the method accepts any arguments.
    """
    _self, _context, *rest = inspect.signature(function).parameters.values()
    any_kind = inspect.Parameter.VAR_KEYWORD
    named = [each for each in rest if each.kind is not any_kind]
    return (frozenset(each.name for each in named) if named == rest else None,
            [each.name for each in named
             if each.default is inspect.Parameter.empty])


def shown(value: str | Exception, most: int = _SHOWN_MAX) -> str:
    """Return untrusted text in a form that logs may contain."""
    text = str(value)[:most]
    if text.isprintable():
        return text
    return ''.join(each if each.isprintable() else '?' for each in text)


def _expected(error: Exception) -> oslo_messaging.ExpectedException:
    """Return an exception that oslo.messaging sends without logging."""
    try:
        raise error
    except Exception:
        return oslo_messaging.ExpectedException()


class BaseAPI:
    """The endpoint of every server, for pings."""

    target = oslo_messaging.Target(namespace='baseapi', version='1.1')

    def __init__(self, service: str) -> None:
        self._service = service

    def ping(
        self, context: request_context.RequestContext, arg: Any
    ) -> dict[str, Any]:
        """Return ``arg`` and the name of the service."""
        return {'service': self._service, 'arg': arg}

    def get_backdoor_port(
        self, context: request_context.RequestContext
    ) -> None:
        """Return None: there is no debugger."""


class Arguments(serializer.Serializer):
    """Deserializes messages; errors are those of the caller."""

    def deserialize_entity(self, ctxt: Any, entity: Any) -> Any:
        if type(entity) in base.PLAIN:
            return entity
        try:
            return super().deserialize_entity(ctxt, entity)
        except ovo_exception.IncompatibleObjectVersion:
            # Callers know this error by its name.
            raise
        except (AttributeError, KeyError, RecursionError, TypeError,
                ValueError,
                ovo_exception.VersionedObjectsException) as exc:
            # The text of these errors does not name the part of the message.
            raise exception.InvalidField(
                where='message', field='nova_object',
                problem=f'it cannot be read ({type(exc).__name__})',
                expected='objects of known names and versions') from None

    def deserialize_context(
        self, ctxt: dict[str, Any]
    ) -> request_context.RequestContext:
        try:
            context = super().deserialize_context(ctxt)
        except (AttributeError, TypeError, ValueError) as exc:
            raise exception.InvalidField(
                where='message', field='context',
                problem=f'it cannot be read ({type(exc).__name__})',
                expected='the result of RequestContext.to_dict') from None
        deadline: Any = ctxt.get('deadline')
        if _is_time(deadline):
            context.answer_by = deadline + LATE_S
        return context


#: Uuids of a message that are read at most to find out what it waits for.
_KEYS_MAX = 10_000


class Server:
    """Receives the messages of a topic and processes them in threads.

    The messages of different projects take turns. Messages for one instance
    are processed one after the other, in their order. Messages of a project
    that wait for something outside stop no other project; see
    :class:`cellsched.batching.TaskQueue`. If too many messages wait, the
    caller gets ``ServiceBusy``; a message without a caller is dropped, and
    its sender's recovery repeats it.

    :param queue: processes the messages, also those of other servers; by
        default the server has one of its own, with
        ``[DEFAULT] executor_thread_pool_size`` places
    """

    def __init__(
        self, transport: Transport, target: oslo_messaging.Target,
        dispatcher: Dispatcher,
        queue: TaskQueue | None = None, clock: Clock = local.CLOCK,
    ) -> None:
        self.dispatcher = dispatcher
        self._transport = transport
        self._target = target
        self._queue = queue
        self._clock = clock
        self._executor: Any = None
        self._listener: Any = None
        self._pings: client.Client | None = None
        self._begun: dict[futures.Future[None], Any] = {}
        #: When the log had the last refused message.
        self._refused_at = -math.inf
        #: Maximum number of running messages of a method, by its name.
        self._limits = {
            method: most for endpoint in dispatcher.endpoints
            for method, most in getattr(endpoint, 'at_once', {}).items()}

    def start(self, override_pool_size: int | None = None) -> None:
        """Start to receive messages.

        :param override_pool_size: number of places
        """
        if self._queue is None:
            places = (override_pool_size
                      or self._transport.conf.executor_thread_pool_size)
            # Idle threads of oslo.messaging's executor wake every second.
            self._executor = futures.ThreadPoolExecutor(
                TaskQueue.threads(places))
            self._queue = TaskQueue(self._executor, places)
        self._listener = self._transport.listener(self._target)
        self._listener.start(self._take)

    def stop(self) -> None:
        """Stop receiving messages."""
        if self._listener is not None:
            self._listener.stop()

    def wait(self, timeout_s: float = STOP_S) -> None:
        """Return when all received messages are processed.

        A message that is not processed in time is logged and left: its thread
        ends with the process, and recovery repeats its work.
        """
        deadline = self._clock.monotonic() + timeout_s
        while self._begun and (
                rest_s := deadline - self._clock.monotonic()) > 0:
            futures.wait(
                set(self._begun), None if rest_s == math.inf else rest_s)
        unfinished = len(self._begun)
        if unfinished:
            LOG.warning('Stopping with %d messages of topic %s in progress '
                        'after %g seconds', unfinished, self._target.topic,
                        timeout_s)
        if self._executor is not None:
            self._executor.shutdown(wait=not unfinished)
        if self._listener is not None:
            self._listener.cleanup()

    @property
    def topic(self) -> str:
        """The topic of the messages."""
        return self._target.topic

    @property
    def target(self) -> oslo_messaging.Target:
        """The topic and the host of the messages."""
        return self._target

    def in_progress(self) -> dict[str, tuple[int, set[str]]]:
        """Return the messages in progress, by method.

        :returns: their number, and the uuids of the instances
        """
        found: dict[str, tuple[int, set[str]]] = {}
        for message in list(self._begun.values()):
            method = shown(str(message.get('method')))
            count, uuids = found.get(method, (0, set()))
            found[method] = (
                count + 1, uuids.union(_instances(message.get('args'))))
        return found

    def answers(self, timeout_s: float) -> bool:
        """Return whether the threads of messages run; blocks."""
        return self._queue is None or self._queue.answers(timeout_s)

    def ping(self, timeout_s: float) -> str:
        """Send a message to this server by the broker, and wait for a reply.

        Another process with the same topic and host may answer. One call at a
        time.

        :raises oslo_messaging.MessagingException: there is no reply
        """
        if self._pings is None:
            self._pings = client.Client(
                self._transport, self.topic, BaseAPI.target.version,
                BaseAPI.target.namespace, timeout_s, retries_max=0)
        self._pings.call(
            request_context.admin(), 'ping', None, self._target.server, arg='')
        return ''

    @property
    def is_busy(self) -> bool:
        """True while a received message is not processed."""
        return bool(self._begun)

    def state(self) -> dict[str, Any]:
        """Return the requests in progress, for reports on the process.

        ``keys_in_use`` has the uuids of the instances that they are about.
        """
        return {'topic': self._target.topic, **(
            self._queue.state() if self._queue is not None else {})}

    def waiting_instances(self) -> set[str]:
        """Return the uuids in received messages that are not begun."""
        keys = self._queue.waiting_keys() if self._queue is not None else ()
        return {key[1] for key in keys if isinstance(key, tuple)
                and key[0] is self} - self._limits.keys()

    def _take(self, messages: Sequence[Any]) -> None:
        assert self._queue is not None
        for each in messages:
            future = self._queue.submit(
                self._place(each), local.acknowledge_and_handle,
                self.dispatcher, each)
            self._begun[future] = each.message
            future.add_done_callback(functools.partial(self._end, each))

    def _end(self, message: Any, future: 'futures.Future[None]') -> None:
        try:
            error = future.exception()
            if isinstance(error, exception.ServiceBusy):
                self._refuse(message, error)
        finally:
            self._begun.pop(future, None)

    def _refuse(self, message: Any, error: exception.ServiceBusy) -> None:
        now = self._clock.monotonic()
        if now - self._refused_at > _REFUSED_S:
            self._refused_at = now
            LOG.warning('Refused message %s and maybe more: %s',
                        shown(str(message.message.get('method'))), error)
        try:
            message.reply(failure=(type(error), error, None))
        except Exception as exc:
            LOG.debug('The reply was not sent: %s', exc)

    def _place(self, message: Any) -> Place:
        """Return the position of a message, which may be malformed."""
        context, body = message.ctxt, message.message
        project = (context.get('project_id') or context.get('tenant')
                   if isinstance(context, dict) else None)
        uuids = _instances(body.get('args'))
        keys: dict[Hashable, int] = {(self, uuid): 1 for uuid in uuids}
        method = body.get('method')
        if isinstance(method, str) and method in self._limits:
            keys[self, method] = self._limits[method]
        return Place(project if is_name(project) else '', keys,
                     max(len(uuids), 1))


#: Seconds between two log lines about refused messages.
_REFUSED_S = 60.0


def _instances(args: Any) -> list[str]:
    """Return the uuids of the instances in the arguments of a message."""
    if not isinstance(args, dict):
        return []
    found = [args.get('instance_uuid'), _uuid(args.get('instance'))]
    for name, read in (('instance_uuids', str), ('instances', _uuid)):
        values = args.get(name)
        if isinstance(values, list):
            found += map(read, values[:_KEYS_MAX])
    return list(dict.fromkeys(filter(is_name, found)))


def _uuid(envelope: Any) -> Any:
    """Return the uuid in the envelope of an instance."""
    fields = (envelope.get('nova_object.data')
              if isinstance(envelope, dict) else None)
    return fields.get('uuid') if isinstance(fields, dict) else None


def server(
    transport: Transport, topic: str, host: str,
    endpoints: Sequence[Any], now: Callable[[], float] | None = None,
    error_form: str = OURS, queue: TaskQueue | None = None,
    clock: Clock = local.CLOCK,
) -> Server:
    """Return a server of a topic, not started.

    It receives messages to the topic and to this host. Methods with a leading
    ``_`` cannot be called. Errors are sent to the caller.

    Call ``start()``, then ``stop()`` and ``wait()``, which returns when all
    received messages are processed, or after ``STOP_S``.

    :param now: returns seconds since the epoch by the clock of callers'
        deadlines; without it deadlines are ignored
    :param error_form: form of errors that are safe for users; see ``errors``
    :param queue: see :class:`Server`
    """
    dispatcher = Dispatcher(
        [*endpoints, BaseAPI(topic)], Arguments(), now,
        translation(error_form))
    # oslo.messaging reads the global configuration, which may be another one.
    conf = transport.conf
    if 'rpc_ping_enabled' in conf and conf.rpc_ping_enabled:
        dispatcher.endpoints.append(oslo_dispatcher.PingEndpoint())
    return Server(
        transport, oslo_messaging.Target(topic=topic, server=host),
        dispatcher, queue, clock)

# SPDX-License-Identifier: Apache-2.0
"""Every error of this project.

::

    CellschedException
    ├── Invalid                      bad input; nothing was changed
    │   ├── Cell0CannotBeDisabled
    │   ├── ConductorClosed
    │   ├── DisksNotTransferable     names the disks that would be lost
    │   ├── HardwareRequestInvalid   has the name of Nova's error
    │   ├── InvalidField             names the field and the expectation
    │   ├── MarkerNotFound
    │   ├── NoUniqueServer           names the uuids of several servers
    │   └── ConfigurationInvalid
    │       └── PluginNotFound       lists the installed plug-ins
    ├── NotFound
    │   ├── AggregateHostNotFound
    │   ├── AggregateNotFound
    │   ├── CellMappingNotFound
    │   ├── ColumnNotFound           names the nearest column; also a KeyError
    │   ├── ComputeHostMetricNotFound
    │   ├── DecisionNotFound
    │   ├── FlavorNotFound
    │   ├── HostMappingNotFound
    │   ├── InstanceGroupNotFound
    │   ├── InstanceMappingNotFound
    │   ├── InstanceNotFound
    │   ├── ProjectQuotaNotFound     or the caller may not read it
    │   ├── ResourceProviderNotFound
    │   └── ServiceNotFound
    ├── Exists
    │   ├── AggregateExists
    │   ├── CellMappingExists
    │   ├── FlavorExists
    │   ├── HostIdentityConflict     another machine has the name or the uuid
    │   ├── HostInOtherZone          names its zone
    │   ├── HostNameTaken            by another agent
    │   ├── HostMappingExists        names both cells
    │   ├── ResourceProviderExists
    │   └── ServerExists
    ├── InUse                        cannot be deleted yet
    │   ├── AggregateInUse           names the shared resource provider
    │   ├── CellInUse                names hosts, servers or deleted servers
    │   ├── HostInUse
    │   ├── ResourceProviderInUse    servers have allocations of it
    │   └── ZoneInUse                the host has servers
    ├── InstanceInvalidState         names the state
    ├── NoValidHost                  carries rejections, never host names
    │   └── MaxRetriesExceeded
    ├── OverQuota                    the project has no room
    ├── RateLimitExceeded            says when the project may retry
    ├── LimitsUnavailable            Keystone did not return quota limits
    ├── PolicyNotAuthorized          names the policy rule
    ├── ClaimRefused                 the provider lacks capacity
    │   └── GroupPolicyViolated      or the server group's policy forbids it
    ├── ClaimConflict                the consumer has a different claim
    ├── ClaimsNotCopied              to another store; has the reason
    ├── BrokerRefused                the user, the password, the virtual host
    ├── BrokerUnreachable            none of its hosts answers
    ├── CellUnreachable
    ├── CellsDown                    names the cells that do not answer
    ├── HostStateUncertain           most hosts went down at the same time
    ├── ServiceBusy                  too many requests wait; try again later
    ├── DeadlineExceeded             the caller no longer waits for the answer
    ├── BuildDeadlineExceeded        the build took too long
    ├── MoveAbandoned                an evacuation replaces it, for example
    ├── MoveDeadlineExceeded         the migration took too long
    ├── RequestUnreadable            the record of the request is lost
    │   └── RequestTooNew            a later release wrote it and builds it
    ├── TaskAbandoned                its process stopped
    ├── ReasonUnknown                no fault was recorded
    ├── BuildFailed                  on this host; another one may do
    ├── BuildAborted                 for good
    ├── NetworkError                 on this host; another one may do
    ├── PluginFailed                 names the plug-in
    ├── VersionNotSendable           [upgrade_levels] forbids the message
    ├── SelectionObjectsWithOldRPCVersionNotSupported
    ├── ServiceTooOld                all compute services are newer
    └── DatabaseError
        ├── ConstraintViolated       by a row that was written
        ├── DatabaseUnreachable
        │   ├── ClaimStoreFailed     or one of its records cannot be read
        │   └── ConnectionLost       a new connection may work
        ├── SchemaOutOfDate          names the command that updates it
        ├── WrongDatabase            has the tables of another schema
        └── TransactionLost          to a concurrent one; can be retried
            └── DatabaseBusy         waited too long; can be retried later
                └── ClaimBusy        names the providers with locked rows

An error takes its fields by keyword. They fill in ``msg_fmt``, stay readable
as attributes, and travel over RPC in ``kwargs``, so they are plain data.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import TypeVar

from cellsched import urls

_Error = TypeVar('_Error', bound=BaseException)

#: Suffix that a transport adds to the class name of a received error.
_REMOTE = '_Remote'


class ThreadStopped(BaseException):
    """Ends a thread at the request of its owner; do not catch it."""


#: Errors that end a thread or a generator on purpose. They are no failures.
STOPS = (KeyboardInterrupt, GeneratorExit, ThreadStopped)


def kind_of(error: BaseException) -> str:
    """Return the class name of an error, as it was raised.

    A transport adds a suffix to the class name of a known error. For an
    unknown error it returns another class that has the name as a field.
    """
    name = getattr(error, 'exc_type', None) or type(error).__name__
    return str(name).removesuffix(_REMOTE)


#: Texts for users in place of errors with internal details, by class name.
#: Some of the classes are of libraries.
_USER_TEXTS = {
    'AMQPError': 'a message broker did not answer',
    'BrokerRefused': 'a message broker refused the connection',
    'BrokerUnreachable': 'a message broker did not answer',
    'CellUnreachable': 'its cell did not answer',
    'ClaimConflict': 'it has a different claim already',
    'ClaimRefused': 'another server took the resources of its host',
    'ConfigurationInvalid': 'a service is not configured correctly',
    'DatabaseBusy': 'a database was too busy',
    'DatabaseError': 'a database failed',
    'DatabaseUnreachable': 'a database did not answer',
    'DeadlineExceeded': 'a service received it after its deadline',
    'GroupPolicyViolated': 'the policy of its server group forbids the host',
    'HostMappingNotFound': 'the selected host no longer exists',
    'KombuError': 'a message broker did not answer',
    'LimitsUnavailable': 'the quota limits of its project are unavailable',
    'MessageDeliveryFailure': 'a message broker did not answer',
    'MessagingTimeout': 'a service did not answer in time',
    'NotFound': 'an object that it needs no longer exists',
    'RPCVersionCapError': 'services have incompatible versions',
    'SchemaOutOfDate': 'a database is not up to date',
    'ServiceBusy': 'a service was too busy',
    'ServiceTooOld': 'services have incompatible versions',
    'TransactionLost': 'a database was too busy',
    'UnsupportedVersion': 'services have incompatible versions',
    'VersionNotSendable': 'services have incompatible versions',
}

#: The text for users in place of all other errors.
_INTERNAL = 'an error that operators find in the logs'


def user_text(error: BaseException) -> str:
    """Return the text of an error for users, without a class name.

    It is the error's own text without its internals if the class is ``safe``,
    and otherwise a sentence about its kind.
    """
    if isinstance(error, CellschedException) and error.safe:
        return error.format_for_users()
    name = kind_of(error)
    # The class of an error from a transport may not be known here.
    kind = globals().get(name, type(error))
    names = [name, *(each.__name__ for each in kind.__mro__)]
    return next((_USER_TEXTS[each] for each in names if each in _USER_TEXTS),
                _INTERNAL)


class CellschedException(Exception):
    """Base of all errors.

    ``code`` is the HTTP status code. ``safe`` says whether the text may be
    shown to users who are not administrators. Such a text names a host, node,
    service, cell or URL only by ``internals``: texts that fill in ``%(name)s``
    in other fields for administrators, and are left out for users. They begin
    with a space: ``problem='its host%(host)s is down', internals={'host': '
    compute7'}``.
    """

    msg_fmt = 'An unknown error occurred.'
    code = 500
    safe = False

    def __init__(
        self, message: str | None = None, *,
        internals: Mapping[str, str] | None = None, **kwargs: Any,
    ) -> None:
        if internals:
            kwargs = {
                **kwargs, **_filled(kwargs, internals),
                'for_users': _filled(kwargs, dict.fromkeys(internals, ''))}
        self.kwargs = dict(kwargs)
        self.kwargs.setdefault('code', self.code)
        if message is None:
            message = self._text(kwargs)
        super().__init__(message)

    def _text(self, kwargs: dict[str, Any]) -> str:
        return self.msg_fmt % kwargs

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__['kwargs'][name]
        except KeyError:
            raise AttributeError(name) from None

    def format_message(self) -> str:
        """Return the text, without additions of a transport."""
        return str(self.args[0])

    def format_for_users(self) -> str:
        """Return the text without its internals."""
        for_users = self.kwargs.get('for_users')
        if not for_users:
            return self.format_message()
        return self._text({**self.kwargs, **for_users})


def _filled(
    fields: Mapping[str, Any], internals: Mapping[str, str]
) -> dict[str, str]:
    """Return the fields that name internals, with these texts in place."""
    filled = {}
    for field, text in fields.items():
        if isinstance(text, str) and '%(' in text:
            for name, value in internals.items():
                text = text.replace(f'%({name})s', value)
            filled[field] = text
    return filled


#: Fields that explain an :class:`Invalid`, in the order of its text.
_REASONS = ('problem', 'expected')


class Invalid(CellschedException):
    """Base of errors in the input of a user or an operator.

    An error of a field has a ``problem``, an expectation (``expected``), or
    both. Its text has the problem first.
    """

    msg_fmt = 'Bad input.'
    code = 400
    safe = True

    def __init__(self, message: str | None = None, **kwargs: Any) -> None:
        kwargs = {name: value for name, value in kwargs.items()
                  if value is not None or name not in _REASONS}
        super().__init__(message, **kwargs)

    def _text(self, kwargs: dict[str, Any]) -> str:
        return self.msg_fmt % {**kwargs, 'detail': _detail(**kwargs)}

    @property
    def detail(self) -> str:
        """The problem and the expectation, as the text has them."""
        return _detail(**self.kwargs)

    @property
    def reasons(self) -> dict[str, str]:
        """The problem and the expectation, to be raised for another field."""
        return {name: self.kwargs[name] for name in _REASONS
                if name in self.kwargs}


def _detail(
    problem: str | None = None, expected: str | None = None, **_: Any
) -> str:
    return '; '.join(filter(None, (
        problem, expected and f'expected {expected}')))


class DisksNotTransferable(Invalid):
    """A migration would lose local disks, because a host cannot transfer them.

    ``which`` describes that host, and ``disks`` are the disks.
    """

    msg_fmt = ('Migrating server %(uuid)s would lose its %(disks)s: '
               '%(which)s cannot transfer disks; expected hosts that can, or '
               'the option to rebuild the server without its data (rebuild).')


class InvalidField(Invalid):
    """``field`` is not what was ``expected``; ``where`` names its document."""

    msg_fmt = '%(where)s: %(field)s: %(detail)s'


class HardwareRequestInvalid(Invalid):
    """A flavor and an image ask for impossible CPUs, pages or devices.

    ``error`` is the name of Nova's error, ``problem`` its text.
    """

    msg_fmt = '%(problem)s'


class MarkerNotFound(Invalid):
    msg_fmt = 'server list: marker: there is no server %(marker)s.'


class ConfigurationInvalid(Invalid):
    """An option is invalid; the text may have its value, such as a URL."""

    msg_fmt = 'Configuration: %(field)s: %(detail)s'
    safe = False


class PluginNotFound(ConfigurationInvalid):
    """``named`` describes the option that names the plug-in, or is empty."""

    msg_fmt = ('No plug-in %(name)s in %(namespace)s%(named)s; '
               'expected one of %(available)s.')


class NotFound(CellschedException):
    msg_fmt = 'Not found.'
    code = 404


class AggregateHostNotFound(NotFound):
    msg_fmt = "Host '%(host)s' is not in aggregate %(aggregate)s."


class AggregateNotFound(NotFound):
    msg_fmt = 'There is no aggregate %(aggregate)s.'


class CellMappingNotFound(NotFound):
    msg_fmt = 'There is no cell %(uuid)s.'


class ColumnNotFound(NotFound, KeyError):
    """``near`` ends the sentence with the name of a similar column."""

    msg_fmt = "The host table has no column '%(column)s'%(near)s"

    def __str__(self) -> str:
        # A KeyError would quote it.
        return self.format_message()


class ComputeHostMetricNotFound(NotFound):
    msg_fmt = ('Host %(host)s, node %(node)s does not report the metric '
               '%(name)s.')


class DecisionNotFound(NotFound):
    msg_fmt = 'There is no decision on %(name)s; %(kept)s.'


class FlavorNotFound(NotFound):
    msg_fmt = 'There is no flavor %(flavor)s.'
    safe = True


class HostMappingNotFound(NotFound):
    msg_fmt = "Host '%(host)s' is not mapped to any cell."


class InstanceGroupNotFound(NotFound):
    msg_fmt = 'There is no server group %(uuid)s.'
    safe = True


class InstanceMappingNotFound(NotFound):
    msg_fmt = 'Instance %(uuid)s is not mapped to a cell.'


class InstanceNotFound(NotFound):
    msg_fmt = 'There is no server %(uuid)s.'
    safe = True


class ConductorClosed(Invalid):
    msg_fmt = 'The conductor is closed; expected a new EmbeddedConductor.'


class NoUniqueServer(Invalid):
    """Several servers have the name ``name``, or a uuid that begins so."""

    msg_fmt = ('%(name)s means several servers: %(uuids)s; expected the uuid '
               'of one')
    code = 409


class ProjectQuotaNotFound(NotFound):
    msg_fmt = 'There is no quota of project %(project_id)s.'
    safe = True


class ResourceProviderNotFound(NotFound):
    msg_fmt = 'There is no resource provider %(provider)s.'


class ServiceNotFound(NotFound):
    msg_fmt = "Host '%(host)s' has no service %(binary)s."


class Exists(CellschedException):
    msg_fmt = 'It exists already.'
    code = 409


class ServerExists(Exists):
    msg_fmt = ('Server %(uuid)s exists already, with another %(field)s; '
               'expected a new uuid or the same request.')


class AggregateExists(Exists):
    msg_fmt = 'There is an aggregate with the name %(name)s already.'


class CellMappingExists(Exists):
    msg_fmt = 'Cell %(uuid)s has the same %(field)s.'


class FlavorExists(Exists):
    msg_fmt = 'There is a flavor with the %(field)s %(value)s already.'


class HostInOtherZone(Exists):
    msg_fmt = ("Host '%(host)s' is in availability zone %(zone)s already; it "
               'can be in one only.')


class HostNameTaken(Exists):
    """Two agents use one host name; the newer one must stop."""

    msg_fmt = ("The host name '%(host)s' is in use by %(by)s already; host "
               'names are unique.')


class HostIdentityConflict(Exists):
    """A host is not the machine that its name or its guests belong to."""

    msg_fmt = '[DEFAULT] host = %(host)s: %(problem)s; expected %(expected)s.'


class HostMappingExists(Exists):
    msg_fmt = ("Host '%(host)s' of cell %(cell)s is mapped to cell "
               '%(mapped_cell)s already; host names are unique across cells.')


class ResourceProviderExists(Exists):
    msg_fmt = ('There is a resource provider with the name %(name)s '
               'already.')


class InUse(CellschedException):
    """The object cannot be deleted while it has dependents."""

    code = 409


class AggregateInUse(InUse):
    msg_fmt = ('The hosts of aggregate %(aggregate)s share the resource '
               'provider %(provider)s; delete the provider first.')


class CellInUse(InUse):
    """A cell cannot be deleted: it has ``count`` objects of kind ``by``."""

    HOSTS = 'hosts'
    SERVERS = 'servers'
    DELETED = 'deleted servers that are not archived'

    msg_fmt = 'Cell %(cell)s has %(count)s %(by)s.'


class ZoneInUse(InUse):
    msg_fmt = ("The availability zone of host '%(host)s' would change from "
               '%(before)s to %(after)s, and the host has %(count)s servers; '
               'move the servers away first.')


class HostInUse(InUse):
    msg_fmt = "Host '%(host)s' has %(count)s servers."


class ResourceProviderInUse(InUse):
    msg_fmt = ('Resource provider %(provider)s has allocations of %(count)s '
               'consumers.')


class Cell0CannotBeDisabled(Invalid):
    msg_fmt = ('Cell0 records servers that were not built, and cannot be '
               'disabled.')


class InstanceInvalidState(CellschedException):
    """A server in ``state`` does not allow ``action``."""

    msg_fmt = 'Server %(uuid)s cannot %(action)s while it is %(state)s.'
    code = 409
    safe = True


class NoValidHost(CellschedException):
    """No host can take the request.

    ``rejections`` has the reasons, in the order of the filters: a list of
    ``{'by': name, 'hosts': count, 'reason': text}``.
    """

    msg_fmt = 'No valid host was found. %(reason)s'
    safe = True


class MaxRetriesExceeded(NoValidHost):
    msg_fmt = 'Exceeded maximum number of retries. %(reason)s'


class PolicyNotAuthorized(CellschedException):
    """The caller lacks the permission of the rule ``action``."""

    msg_fmt = 'The policy rule %(action)s does not allow this operation.'
    code = 403
    safe = True


class OverQuota(CellschedException):
    """A project, or a user in it, would exceed its limits.

    ``overs`` names the resources; ``req``, ``used`` and ``allowed`` have the
    amounts in the same order. The code is 403 if the request is rejected, and
    413 if it was accepted and the build failed later.
    """

    msg_fmt = ('Quota exceeded for %(overs)s: requested %(req)s, but already '
               'used %(used)s of %(allowed)s %(overs)s')
    code = 403
    safe = True

    def __init__(self, message: str | None = None, **kwargs: Any) -> None:
        super().__init__(message, **kwargs)
        self.code = self.kwargs['code']


class RateLimitExceeded(CellschedException):
    """A project requests too many servers; ``retry_s`` has the seconds."""

    msg_fmt = ('Project %(project)s may request %(limit)s servers in a '
               'minute; retry in %(retry_s)s seconds.')
    code = 429
    safe = True


class LimitsUnavailable(CellschedException):
    msg_fmt = 'Keystone did not return the quota limits: %(reason)s'
    code = 503


class ClaimRefused(CellschedException):
    """``provider`` lacks ``amount`` of ``resource`` for ``consumer``."""

    msg_fmt = ('Provider %(provider)s has no room for %(amount)s '
               '%(resource)s.')
    code = 409


class GroupPolicyViolated(ClaimRefused):
    """``consumer`` would break ``policy`` of server ``group``.

    ``hosts`` are the hosts of the other members, and ``members`` the consumers
    of their claims. Only schedulers read them.
    """

    msg_fmt = ('The policy %(policy)s of server group %(group)s does not '
               'allow this host.')


class ClaimConflict(CellschedException):
    msg_fmt = 'Consumer %(consumer)s holds a different claim.'
    code = 409


class ClaimsNotCopied(CellschedException):
    """No claim was copied; ``reason`` has the cause."""

    msg_fmt = 'No claims were copied: %(reason)s'
    code = 409


class BrokerRefused(CellschedException):
    """The broker at ``place`` refuses the connection of option ``field``."""

    msg_fmt = 'The broker at %(place)s refuses %(field)s: %(reason)s'
    code = 503


class BrokerUnreachable(CellschedException):
    msg_fmt = 'The broker of %(field)s is unreachable: %(reason)s'
    code = 503


class CellUnreachable(CellschedException):
    msg_fmt = 'Cell %(cell)s did not answer: %(reason)s'
    code = 503


class CellsDown(CellschedException):
    msg_fmt = 'These cells do not answer for their servers: %(cells)s.'
    code = 503


class HostStateUncertain(CellschedException):
    """The scheduler cannot decide which hosts are up; retry later.

    ``hosts`` of ``known`` hosts went down at the same time.
    """

    msg_fmt = ('The scheduler cannot decide which hosts are up: %(hosts)s of '
               '%(known)s went down at the same time; retry later.')
    code = 503
    safe = True


class ServiceBusy(CellschedException):
    msg_fmt = ('The service is busy: %(waiting)s requests wait already; try '
               'again later')
    code = 503
    safe = True


class DeadlineExceeded(CellschedException):
    """The message arrived after the deadline of its caller."""

    msg_fmt = 'The deadline of this call passed %(late_s)s seconds ago.'
    code = 504


class BuildDeadlineExceeded(CellschedException):
    msg_fmt = ('The build was given up after %(seconds)s seconds and '
               '%(attempts)s attempts. %(reason)s')
    safe = True


class MoveAbandoned(CellschedException):
    """An evacuation or an administrator ended a move in progress."""

    msg_fmt = 'The %(kind)s was ended: %(reason)s.'
    safe = True


class MoveDeadlineExceeded(CellschedException):
    msg_fmt = ('The %(kind)s was aborted after %(seconds)s seconds without '
               'progress.')
    safe = True


class RequestUnreadable(CellschedException):
    """The record ``what`` of a request is missing or unreadable.

    ``problem`` has the cause. A server without it cannot be built.
    """

    msg_fmt = 'The %(what)s of %(uuid)s %(problem)s.'
    safe = True


class RequestTooNew(RequestUnreadable):
    """The record has a later major version; services of its release use it."""


class TaskAbandoned(CellschedException):
    msg_fmt = ('The %(task)s of %(uuid)s was not finished: its process has '
               'stopped.')
    safe = True


class ReasonUnknown(CellschedException):
    msg_fmt = 'Server %(uuid)s is in ERROR without a recorded reason.'
    safe = True


class BuildFailed(CellschedException):
    """The build failed on this host; it may be tried on another."""

    msg_fmt = 'The build of %(uuid)s failed on this host: %(reason)s'
    safe = True


class BuildAborted(CellschedException):
    """The build failed, and would fail on every other host too."""

    msg_fmt = 'The build of %(uuid)s was aborted: %(reason)s'
    safe = True


class NetworkError(CellschedException):
    """The networks of a server failed on this host; another may work."""

    msg_fmt = 'The networks of %(uuid)s failed: %(reason)s'
    safe = True


class PluginFailed(CellschedException):
    """``plugin`` failed, and with it the request.

    The text has only the name of the plug-in. The log has the cause, which may
    have details that users must not see.
    """

    msg_fmt = '%(kind)s %(plugin)s failed.'
    safe = True


class VersionNotSendable(CellschedException):
    """``version`` of a message is newer than the client's ``cap``."""

    msg_fmt = ('[upgrade_levels] %(topic)s limits messages to version '
               '%(cap)s; this message needs %(version)s.')


class SelectionObjectsWithOldRPCVersionNotSupported(CellschedException):
    """The cap of the client lacks selection objects or alternates.

    An answer in an older format would be misread, so the call is rejected.
    """

    msg_fmt = ('[upgrade_levels] scheduler limits messages to version '
               '%(version)s; selection objects and alternates need 4.5.')


class ServiceTooOld(CellschedException):
    """All compute services are newer than this process supports."""

    msg_fmt = ('This process supports compute services up to version '
               '%(known)s, but the oldest one has version %(version)s; '
               'upgrade this process, or set [upgrade_levels] compute to a '
               'version that both support.')


class DatabaseError(CellschedException):
    msg_fmt = 'The %(schema)s database failed: %(reason)s'


class ConstraintViolated(DatabaseError):
    """A row is a duplicate, or refers to a row that does not exist."""

    msg_fmt = ('A constraint of the %(schema)s database refuses a row: '
               '%(reason)s')


class DatabaseUnreachable(DatabaseError):
    msg_fmt = ('The %(schema)s database at %(url)s cannot be reached: '
               '%(reason)s')
    code = 503


class ConnectionLost(DatabaseUnreachable):
    """An open connection failed, or its server takes no further work.

    The connection is discarded. A new one may work, perhaps with another
    server. If the transaction was being committed, its outcome is unknown;
    otherwise it was rolled back.
    """

    msg_fmt = ('A connection to the %(schema)s database at %(url)s failed: '
               '%(reason)s')


class ClaimStoreFailed(DatabaseUnreachable):
    """The claim store refuses a request, or cannot read a record.

    Callers treat it as a store that does not answer: they retry.
    """

    msg_fmt = DatabaseError.msg_fmt

    def __init__(self, message: str | None = None, **kwargs: Any) -> None:
        super().__init__(message, **{'schema': 'claims', **kwargs})


class SchemaOutOfDate(DatabaseError):
    msg_fmt = ('The %(schema)s database at %(url)s has schema version '
               '%(version)s, not %(expected)s; run: %(command)s')


class WrongDatabase(DatabaseError):
    msg_fmt = ('The database at %(url)s is not one for the %(schema)s schema: '
               'it has %(found)s.')


class TransactionLost(DatabaseError):
    """A concurrent transaction won; this one was rolled back."""

    msg_fmt = ('A transaction of the %(schema)s database lost to another: '
               '%(reason)s')
    code = 503


class DatabaseBusy(TransactionLost):
    """A statement exceeded its limit; its transaction was rolled back.

    It waited for a lock, or took too long. A retry at once would wait again.
    """

    msg_fmt = ('A statement of the %(schema)s database exceeded its time '
               'limit: %(reason)s')


class ClaimBusy(DatabaseBusy):
    """Another session locks the claims of some providers for too long.

    Nothing was claimed, and nothing is known about capacity: the claim may be
    made with other providers now, or with the same ones later.
    """


#: Errors of a database that may answer later, and not at once; also if other
#: work for the same database did not end in time.
DATABASE_UNAVAILABLE = (DatabaseUnreachable, DatabaseBusy, ServiceBusy)


#: Maximum length of an error text in the log.
_TEXT_MAX = 500


#: Uuids that one message names.
_NAMED_MAX = 10


def copy_of(error: _Error) -> _Error:
    """Return an equal error, with the error as its cause.

    If several threads wait for the same work, each raises a copy of its error.
    A raised error gets the traceback and the context of its thread.
    """
    kind = type(error)
    made = kind.__new__(kind, *error.args)
    vars(made).update(vars(error))
    made.__cause__ = error
    return made


def name_some(uuids: Iterable[str]) -> str:
    """Return a text that names some uuids and counts the rest."""
    named = list(uuids)
    more = len(named) - _NAMED_MAX
    return ', '.join(named[:_NAMED_MAX]) + (
        f' and {more} more' if more > 0 else '')


def describe(error: BaseException) -> str:
    """Return an error as one line, without the passwords of URLs in it.

    The text of an error of another service ends with its traceback, which is
    left out.
    """
    text = (error.format_message()
            if isinstance(error, CellschedException)
            else str(error).partition('\nTraceback ')[0])
    text = ' '.join(urls.mask_text(text).split())[:_TEXT_MAX]
    return f'{kind_of(error)}: {text}'

# SPDX-License-Identifier: Apache-2.0
"""Every error of this project.

::

    CellschedException
    ├── Invalid                      bad input; nothing was changed
    │   ├── Cell0CannotBeDisabled
    │   ├── InvalidField             names the field and what was expected
    │   ├── MarkerNotFound
    │   └── ConfigurationInvalid
    │       └── PluginNotFound       lists the plug-ins that are there
    ├── NotFound
    │   ├── AggregateHostNotFound
    │   ├── AggregateNotFound
    │   ├── BuildRequestNotFound
    │   ├── CellMappingNotFound
    │   ├── ColumnNotFound           names the nearest; a KeyError too
    │   ├── ComputeHostMetricNotFound
    │   ├── DecisionNotFound
    │   ├── FlavorNotFound
    │   ├── HostMappingNotFound
    │   ├── InstanceGroupNotFound
    │   ├── InstanceMappingNotFound
    │   ├── InstanceNotFound
    │   ├── ProjectQuotaNotFound     or it is not for who asks
    │   ├── ResourceProviderNotFound
    │   └── ServiceNotFound
    ├── Exists
    │   ├── AggregateExists
    │   ├── CellMappingExists
    │   ├── FlavorExists
    │   ├── HostInOtherZone          names its zone
    │   ├── HostNameTaken            by another agent
    │   ├── HostMappingExists        names both cells
    │   └── ResourceProviderExists
    ├── InUse                        it cannot go yet
    │   ├── AggregateInUse           names what its hosts share
    │   ├── CellInUse                says by what
    │   ├── HostInUse
    │   └── ResourceProviderInUse    servers hold something of it
    ├── InstanceInvalidState         names the state
    ├── NoValidHost                  carries rejections, never host names
    │   └── MaxRetriesExceeded
    ├── OverQuota                    the project has no room
    ├── LimitsUnavailable            of quotas, which Keystone has
    ├── PolicyNotAuthorized          names the rule that others may go by
    ├── ClaimRefused                 the provider has no room
    │   └── GroupPolicyViolated      or the server group wants none there
    ├── ClaimConflict                the consumer holds something else
    ├── ClaimsNotCopied              to another store; says why
    ├── BrokerRefused                the user, the password, the virtual host
    ├── CellUnreachable
    ├── CellsDown                    names those that do not answer
    ├── HostStateUncertain           most hosts went down at one time
    ├── DeadlineExceeded             nobody waits for the answer any more
    ├── BuildDeadlineExceeded        it was tried for too long
    ├── MoveDeadlineExceeded         it was tried for too long
    ├── RequestUnreadable            what was asked for is lost
    ├── TaskAbandoned                nobody was at work on it any more
    ├── ReasonUnknown                nobody recorded it
    ├── BuildFailed                  on this host; another one may do
    ├── BuildAborted                 for good
    ├── NetworkError                 on this host; another one may do
    ├── PluginFailed                 names the plug-in
    ├── VersionNotSendable           a pin holds the message back
    ├── SelectionObjectsWithOldRPCVersionNotSupported
    ├── ServiceTooOld                than every service that it talks to
    └── DatabaseError
        ├── DatabaseUnreachable
        ├── SchemaOutOfDate          names the command that mends it
        ├── WrongDatabase            it has tables of something else
        └── TransactionLost          to another one; it may be tried again

An error takes its fields by keyword. They fill in ``msg_fmt``, stay readable
as attributes, and travel over RPC in ``kwargs``, so they are plain data.
"""

from typing import Any

#: What a transport appends to the class name of an error that came over it.
_REMOTE = '_Remote'


class ThreadStopped(BaseException):
    """Ends a thread on behalf of whoever runs it; nothing handles it."""


#: What ends a thread or a generator on purpose, and is no failure of the code
#: that it passes through.
STOPS = (KeyboardInterrupt, GeneratorExit, ThreadStopped)


def kind_of(error: BaseException) -> str:
    """Return the name of an error's class where it was raised.

    A transport appends to the name of one that it knows, and has another
    error say the name of one that it does not know.
    """
    name = getattr(error, 'exc_type', None) or type(error).__name__
    return str(name).removesuffix(_REMOTE)


#: What users are told of errors whose text is not for them, by the names of
#: their classes; some are of libraries.
_TOLD = {
    'AMQPError': 'a message broker did not answer',
    'BrokerRefused': 'a message broker takes no messages',
    'CellUnreachable': 'its cell did not answer',
    'ClaimConflict': 'it holds another place already',
    'ClaimRefused': 'its place was taken by another one',
    'DatabaseError': 'a database failed',
    'DatabaseUnreachable': 'a database did not answer',
    'DeadlineExceeded': 'a service came to it too late',
    'GroupPolicyViolated': 'its server group leaves no place for it',
    'HostMappingNotFound': 'the host that was chosen has left',
    'KombuError': 'a message broker did not answer',
    'LimitsUnavailable': 'nobody tells how much its project may have',
    'MessageDeliveryFailure': 'a message broker did not answer',
    'MessagingTimeout': 'a service did not answer in time',
    'NotFound': 'something that it needs has gone',
    'RPCVersionCapError': 'services are of versions that do not fit',
    'SchemaOutOfDate': 'a database is not up to date',
    'ServiceTooOld': 'services are of versions that do not fit',
    'TransactionLost': 'a database had too much to do',
    'UnsupportedVersion': 'services are of versions that do not fit',
    'VersionNotSendable': 'services are of versions that do not fit',
}

#: The same of all others.
_NOT_TOLD = 'an error that operators find in the logs'


def told(error: BaseException) -> str:
    """Return what users may read of an error; never the name of a class.

    That is its text, if it is for users. Of others it is the kind, in words:
    their texts may name what users are not to see.
    """
    if isinstance(error, CellschedException) and error.safe:
        return error.format_message()
    name = kind_of(error)
    # One that came in a form that is nobody's has lost what it is derived of.
    kind = globals().get(name, type(error))
    names = [name, *(each.__name__ for each in kind.__mro__)]
    return next((_TOLD[each] for each in names if each in _TOLD), _NOT_TOLD)


class CellschedException(Exception):
    """Base of all errors.

    ``code`` is what an HTTP front end answers. ``safe`` says that users who
    are not operators may read the text: it names no host and no URL.
    """

    msg_fmt = 'An unknown error occurred.'
    code = 500
    safe = False

    def __init__(self, message: str | None = None, **kwargs: Any) -> None:
        self.kwargs = dict(kwargs)
        self.kwargs.setdefault('code', self.code)
        if message is None:
            message = self.msg_fmt % kwargs
        super().__init__(message)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__['kwargs'][name]
        except KeyError:
            raise AttributeError(name) from None

    def format_message(self) -> str:
        """Return the text without what a transport may have appended."""
        return str(self.args[0])


class Invalid(CellschedException):
    """Base of errors in what a user or an operator gave.

    An error with ``expected`` may have a ``problem``, which comes first.
    """

    msg_fmt = 'Bad input.'
    code = 400
    safe = True

    def __init__(self, message: str | None = None, **kwargs: Any) -> None:
        if message is None and 'problem' in kwargs:
            message = self.msg_fmt % {**kwargs, 'expected': (
                f'{kwargs["problem"]}; expected {kwargs["expected"]}')}
        super().__init__(message, **kwargs)


class InvalidField(Invalid):
    """``field`` is not what was ``expected``; ``where`` names its document."""

    msg_fmt = '%(where)s: %(field)s: %(expected)s'


class MarkerNotFound(Invalid):
    msg_fmt = 'server list: marker: there is no server %(marker)s.'


class ConfigurationInvalid(Invalid):
    msg_fmt = 'Configuration: %(field)s: %(expected)s'


class PluginNotFound(ConfigurationInvalid):
    """``named`` says what names the plug-in, or is empty."""

    msg_fmt = ('No plug-in %(name)s in %(namespace)s%(named)s; '
               'there are: %(available)s.')


class NotFound(CellschedException):
    msg_fmt = 'Not found.'
    code = 404


class AggregateHostNotFound(NotFound):
    msg_fmt = "Host '%(host)s' is not in aggregate %(aggregate)s."


class AggregateNotFound(NotFound):
    msg_fmt = 'There is no aggregate %(aggregate)s.'


class BuildRequestNotFound(NotFound):
    msg_fmt = 'There is no build request for instance %(uuid)s.'


class CellMappingNotFound(NotFound):
    msg_fmt = 'There is no cell %(uuid)s.'


class ColumnNotFound(NotFound, KeyError):
    """``near`` ends the sentence, with the nearest column if one is near."""

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


class HostMappingNotFound(NotFound):
    msg_fmt = "Host '%(host)s' is not mapped to any cell."


class InstanceGroupNotFound(NotFound):
    msg_fmt = 'There is no server group %(uuid)s.'


class InstanceMappingNotFound(NotFound):
    msg_fmt = 'Instance %(uuid)s is not mapped to a cell.'


class InstanceNotFound(NotFound):
    msg_fmt = 'There is no server %(uuid)s.'


class ProjectQuotaNotFound(NotFound):
    msg_fmt = 'There is no quota of project %(project_id)s.'


class ResourceProviderNotFound(NotFound):
    msg_fmt = 'There is no resource provider %(provider)s.'


class ServiceNotFound(NotFound):
    msg_fmt = "Host '%(host)s' has no service %(binary)s."


class Exists(CellschedException):
    msg_fmt = 'It exists already.'
    code = 409


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
    """An agent goes by the name of another one, and has to end."""

    msg_fmt = ("The name '%(host)s' is that of %(by)s already; host names are "
               'unique.')


class HostMappingExists(Exists):
    msg_fmt = ("Host '%(host)s' of cell %(cell)s is mapped to cell "
               '%(mapped_cell)s already; host names are unique across cells.')


class ResourceProviderExists(Exists):
    msg_fmt = ('There is a resource provider with the name %(name)s '
               'already.')


class InUse(CellschedException):
    """Something cannot go while it has something."""

    code = 409


class AggregateInUse(InUse):
    msg_fmt = ('The hosts of aggregate %(aggregate)s share the resource '
               'provider %(provider)s; that has to go first.')


class CellInUse(InUse):
    """A cell cannot go: it has so many of what ``by`` says."""

    HOSTS = 'hosts'
    SERVERS = 'servers'
    DELETED = 'deleted servers that are not archived'

    msg_fmt = 'Cell %(cell)s has %(count)s %(by)s.'


class HostInUse(InUse):
    msg_fmt = "Host '%(host)s' has %(count)s servers."


class ResourceProviderInUse(InUse):
    msg_fmt = ('Something is held of resource provider %(provider)s, by '
               '%(count)s consumers.')


class Cell0CannotBeDisabled(Invalid):
    msg_fmt = 'Cell0 takes what cannot be built, and cannot be disabled.'


class InstanceInvalidState(CellschedException):
    """``action`` is not for a server that is in ``state``."""

    msg_fmt = 'Server %(uuid)s cannot %(action)s while it is %(state)s.'
    code = 409
    safe = True


class NoValidHost(CellschedException):
    """No host can take the request.

    ``rejections`` says why, in the order in which hosts were passed over: a
    list of ``{'by': name, 'hosts': count, 'reason': text}``.
    """

    msg_fmt = 'No valid host was found. %(reason)s'
    safe = True


class MaxRetriesExceeded(NoValidHost):
    msg_fmt = 'Exceeded maximum number of retries. %(reason)s'


class PolicyNotAuthorized(CellschedException):
    """``action`` is a rule, and it is not for who calls."""

    msg_fmt = 'The policy %(action)s does not allow it.'
    code = 403
    safe = True


class OverQuota(CellschedException):
    """A project, or a user of it, would have more than its limits allow.

    ``overs`` names the resources, ``req``, ``used`` and ``allowed`` have the
    amounts of each in the same order. The code is 403 where the request is
    refused, and 413 where it was accepted and is not built after all.
    """

    msg_fmt = ('Quota exceeded for %(overs)s: requested %(req)s, but already '
               'used %(used)s of %(allowed)s %(overs)s')
    code = 403
    safe = True

    def __init__(self, message: str | None = None, **kwargs: Any) -> None:
        super().__init__(message, **kwargs)
        self.code = self.kwargs['code']


class LimitsUnavailable(CellschedException):
    msg_fmt = 'Keystone does not tell the limits of quotas: %(reason)s'
    code = 503


class ClaimRefused(CellschedException):
    """``provider`` lacks ``amount`` of ``resource`` for ``consumer``."""

    msg_fmt = ('Provider %(provider)s has no room for %(amount)s '
               '%(resource)s.')
    code = 409


class GroupPolicyViolated(ClaimRefused):
    """``consumer`` would break ``policy`` of server ``group``.

    ``hosts`` says where others are, and ``members`` in which names these hold
    something: for schedulers alone.
    """

    msg_fmt = ('The other members of server group %(group)s leave no place '
               'here, as its policy is %(policy)s.')


class ClaimConflict(CellschedException):
    msg_fmt = 'Consumer %(consumer)s holds a different claim.'
    code = 409


class ClaimsNotCopied(CellschedException):
    """Claims stay in their store alone; ``reason`` says why."""

    msg_fmt = 'No claims were copied: %(reason)s'
    code = 409


class BrokerRefused(CellschedException):
    """The broker at ``place``, of option ``field``, takes no connection."""

    msg_fmt = 'The broker at %(place)s refuses %(field)s: %(reason)s'
    code = 503


class CellUnreachable(CellschedException):
    msg_fmt = 'Cell %(cell)s did not answer: %(reason)s'
    code = 503


class CellsDown(CellschedException):
    msg_fmt = 'These cells do not answer for their servers: %(cells)s.'
    code = 503


class HostStateUncertain(CellschedException):
    """A scheduler cannot tell whether hosts are up; another one may.

    ``hosts`` of ``known`` went down at one time.
    """

    msg_fmt = ('Which hosts are up cannot be told at the moment: %(hosts)s of '
               '%(known)s went down at one time.')
    code = 503
    safe = True


class DeadlineExceeded(CellschedException):
    """The message came when its caller had given up."""

    msg_fmt = 'Nobody has waited for this for %(late_s)s seconds.'
    code = 504


class BuildDeadlineExceeded(CellschedException):
    msg_fmt = ('The build was given up after %(seconds)s seconds and '
               '%(attempts)s attempts. %(reason)s')
    safe = True


class MoveDeadlineExceeded(CellschedException):
    msg_fmt = ('The %(kind)s was given up: nothing was heard of it for '
               '%(seconds)s seconds.')
    safe = True


class RequestUnreadable(CellschedException):
    """``what`` was asked for is missing or cannot be read: ``problem``.

    A server that is still to be built never can be.
    """

    msg_fmt = 'The %(what)s of %(uuid)s %(problem)s.'
    safe = True


class TaskAbandoned(CellschedException):
    msg_fmt = ('The %(task)s of %(uuid)s was not brought to its end, and '
               'nobody was at work on it any more.')
    safe = True


class ReasonUnknown(CellschedException):
    msg_fmt = 'Server %(uuid)s is in ERROR, and nobody recorded why.'
    safe = True


class BuildFailed(CellschedException):
    """The build failed on this host; it may be tried on another."""

    msg_fmt = 'The build of %(uuid)s failed on this host: %(reason)s'
    safe = True


class BuildAborted(CellschedException):
    """The build failed in a way that no other host would mend."""

    msg_fmt = 'The build of %(uuid)s was aborted: %(reason)s'
    safe = True


class NetworkError(CellschedException):
    """The networks of a server failed on this host; another one may do."""

    msg_fmt = 'The networks of %(uuid)s failed: %(reason)s'
    safe = True


class PluginFailed(CellschedException):
    """``plugin`` failed, and with it the request.

    Requesters read which plug-in it was. What it raised is the cause, which
    is for the log alone: it may name what users are not to see.
    """

    msg_fmt = '%(kind)s %(plugin)s failed.'
    safe = True


class VersionNotSendable(CellschedException):
    """A client is held at ``cap`` and was to send ``version``."""

    msg_fmt = ('Messages to %(topic)s are held at version %(cap)s by '
               '[upgrade_levels] %(topic)s; this needs %(version)s.')


class SelectionObjectsWithOldRPCVersionNotSupported(CellschedException):
    """The client is held at ``version``, which has neither of what is asked.

    An answer in an older form than what was asked for would be taken wrongly.
    """

    msg_fmt = ('Messages to schedulers are held at version %(version)s by '
               '[upgrade_levels] scheduler; selections as objects and '
               'alternates need 4.5.')


class ServiceTooOld(CellschedException):
    """Every compute service is newer than what this process knows."""

    msg_fmt = ('This process knows compute services up to version %(known)s, '
               'and the lowest that runs is %(version)s; upgrade this one, or '
               'set [upgrade_levels] compute to a version that both know.')


class DatabaseError(CellschedException):
    msg_fmt = 'The %(schema)s database failed: %(reason)s'


class DatabaseUnreachable(DatabaseError):
    msg_fmt = ('The %(schema)s database at %(url)s cannot be reached: '
               '%(reason)s')
    code = 503


class SchemaOutOfDate(DatabaseError):
    msg_fmt = ('The %(schema)s database at %(url)s has schema version '
               '%(version)s, not %(expected)s; run: %(command)s')


class WrongDatabase(DatabaseError):
    msg_fmt = ('The database at %(url)s is not one for the %(schema)s schema: '
               'it has %(found)s.')


class TransactionLost(DatabaseError):
    """Another transaction was faster; this one was rolled back."""

    msg_fmt = ('A transaction of the %(schema)s database lost to another: '
               '%(reason)s')
    code = 503

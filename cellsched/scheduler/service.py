# SPDX-License-Identifier: Apache-2.0
"""RPC endpoint of a scheduler."""

from collections.abc import Callable
from typing import Any
from typing import TypeVar

from oslo_log import log
import oslo_messaging
from oslo_utils import uuidutils

from cellsched.context import RequestContext
from cellsched import exception
from cellsched.notify import notifiers
from cellsched import objects
from cellsched.objects import legacy
from cellsched.rpc import scheduler
from cellsched.scheduler.drivers import base
from cellsched.scheduler import request_validation
from cellsched.scheduler import requirements

LOG = log.getLogger(__name__)

_Answer = TypeVar('_Answer')

#: The default of an argument that older callers do not send.
_NOT_GIVEN = object()


class Scheduler:
    """Answers ``select_destinations`` with hosts.

    Callers of every version since 4.0 get the response format that they
    expect.

    :param attempts_max: the number of hosts to return for each instance
    :param notifier: emits notifications of requests and their results
    :param ignores_hints: whether to accept hints that no stage reads
    :param ignores_demands: whether to accept requirements that no stage reads
    """

    target = oslo_messaging.Target(version=scheduler.VERSION)

    def __init__(
        self, driver: base.SchedulerDriver, attempts_max: int,
        bounds: request_validation.RequestBounds,
        notifier: notifiers.SchedulerNotifier,
        reached: Callable[[str], None] = lambda step: None,
        ignores_hints: bool = False, ignores_demands: bool = False,
    ) -> None:
        self._driver = driver
        self._notifier = notifier
        self._attempts_max = attempts_max
        self._bounds = bounds
        self._reached = reached
        self._ignores_hints = ignores_hints
        self._requirements = (
            None if driver.reads is None else
            requirements.RequirementCheck(driver.reads, ignores_demands))

    def select_destinations(
        self, context: RequestContext, request_spec: Any = None,
        filter_properties: Any = None, spec_obj: Any = _NOT_GIVEN,
        instance_uuids: Any = None, return_objects: Any = False,
        return_alternates: Any = False,
    ) -> list[Any]:
        """Select and claim a host for each instance.

        A caller that names no instances does not manage claims: it gets hosts
        for the number of instances in the request, and nothing is claimed.

        :param request_spec: with ``filter_properties``, two dicts in place of
            ``spec_obj``
        :returns: with ``return_objects``, for each instance a list of
            selections: the claimed host, then its alternates if requested;
            else for each a dict of host, nodename and limits
        :raises cellsched.exception.NoValidHost: with the reasons
        :raises cellsched.exception.HostStateUncertain: another scheduler may
            decide otherwise
        :raises cellsched.exception.InvalidField: names the field
        :raises cellsched.exception.PluginFailed: names the plug-in
        """
        for name, value in (('return_objects', return_objects),
                            ('return_alternates', return_alternates)):
            if not isinstance(value, bool):
                raise request_validation.invalid(name, 'true or false')
        if spec_obj is _NOT_GIVEN:
            spec_obj = legacy.request_spec(request_spec, filter_properties)
        self._check(context, spec_obj, instance_uuids)
        alternates = (self._attempts_max - 1
                      if return_objects and return_alternates else 0)
        selections = self._select(
            context, spec_obj, instance_uuids, alternates)
        if return_objects:
            return selections
        return [first.to_dict() for first, *_ in selections]

    def update_aggregates(
        self, context: RequestContext, aggregates: Any
    ) -> None:
        """Apply updates of one or several aggregates.

        :raises cellsched.exception.InvalidField: names the field
        """
        value = (aggregates.objects
                 if isinstance(aggregates, objects.AggregateList)
                 else [aggregates])
        request_validation.check_length(
            'aggregates', value, self._bounds.values_max)
        for each in value:
            _check_aggregate('aggregates', each)
            request_validation.check_length(
                'aggregates.hosts', each.get('hosts'),
                self._bounds.values_max)
        self._ask(self._driver.update_aggregates, value)

    def delete_aggregate(
        self, context: RequestContext, aggregate: Any
    ) -> None:
        """Remove an aggregate.

        :raises cellsched.exception.InvalidField: names the field
        """
        _check_aggregate('aggregate', aggregate)
        self._ask(self._driver.delete_aggregate, aggregate.id)

    def update_instance_info(
        self, context: RequestContext, host_name: Any,
        instance_info: Any,
    ) -> None:
        """Record instances of a host, in addition to known ones.

        :raises cellsched.exception.InvalidField: names the field
        """
        if not isinstance(instance_info, objects.InstanceList):
            raise request_validation.invalid(
                'instance_info', 'an InstanceList')
        self._hear(host_name, 'instance_info', [
            each.get('uuid') for each in instance_info.objects], False)

    def delete_instance_info(
        self, context: RequestContext, host_name: Any,
        instance_uuid: Any,
    ) -> None:
        """Remove an instance from a host.

        :raises cellsched.exception.InvalidField: names the field
        """
        request_validation.check_host('host_name', host_name)
        request_validation.check_ids('instance_uuid', [instance_uuid])
        self._ask(self._driver.delete_instance, host_name, instance_uuid)

    def sync_instance_info(
        self, context: RequestContext, host_name: Any,
        instance_uuids: Any,
    ) -> None:
        """Replace the known instances of a host.

        :raises cellsched.exception.InvalidField: names the field
        """
        self._hear(host_name, 'instance_uuids', instance_uuids, True)

    def _check(self, context: RequestContext, spec: Any, uuids: Any) -> None:
        """Check that a request is valid and supported.

        :raises cellsched.exception.NoValidHost: the driver does not support a
            requirement
        :raises cellsched.exception.InvalidField: names the field
        """
        hints = self._driver.hints
        request_validation.check(
            spec, uuids, self._bounds, hints, not self._ignores_hints)
        unknown = request_validation.unknown_hints(spec, hints)
        if unknown:
            LOG.debug('No enabled filter reads the scheduler hints %s',
                      ', '.join(unknown), context=context)
        if self._requirements is not None:
            refusal = self._requirements.refusal(spec, context)
            if refusal is not None:
                raise refusal

    def _select(
        self, context: RequestContext, spec: objects.RequestSpec,
        uuids: list[str] | None, alternates: int,
    ) -> list[list[objects.Selection]]:
        claim = uuids is not None
        if uuids is None:
            uuids = [uuidutils.generate_uuid()
                     for _ in range(spec.get('num_instances', 1))]
        self._notifier.select_destinations(context, 'start', spec, uuids)
        selections = self._ask(
            self._driver.select_destinations, context, spec, uuids,
            alternates, claim)
        self._reached('Select')
        self._notifier.select_destinations(context, 'end', spec, uuids)
        return selections

    def _hear(self, host: Any, field: str, uuids: Any, complete: bool) -> None:
        request_validation.check_host('host_name', host)
        if not isinstance(uuids, list):
            raise request_validation.invalid(field, 'a list of uuids')
        request_validation.check_length(field, uuids, self._bounds.values_max)
        request_validation.check_ids(field, uuids)
        self._ask(self._driver.update_instances, host, uuids, complete)

    def _ask(
        self, question: Callable[..., _Answer], *arguments: Any
    ) -> _Answer:
        """Return the driver's answer; log the failure of a plug-in.

        :raises cellsched.exception.PluginFailed: without its cause, which must
            not be sent to callers
        """
        try:
            return question(*arguments)
        except exception.PluginFailed as exc:
            failure = exc
        except (*exception.STOPS, exception.CellschedException,
                oslo_messaging.MessagingException):
            raise
        except BaseException as exc:
            failure = exception.PluginFailed(
                kind='Scheduler driver', plugin=type(self._driver).__name__)
            failure.__cause__ = exc
        LOG.error('%s', failure, exc_info=failure)
        raise type(failure)(**failure.kwargs)


def _check_aggregate(field: str, value: Any) -> None:
    if not isinstance(value, objects.Aggregate):
        raise request_validation.invalid(field, 'an Aggregate')
    if value.get('id') is None:
        raise request_validation.invalid(f'{field}.id', 'a number')

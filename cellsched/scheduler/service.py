# SPDX-License-Identifier: Apache-2.0
"""What a scheduler answers over RPC."""

from typing import Any

import oslo_messaging

from cellsched import context as context_
from cellsched import exception
from cellsched.notify import notifier as notifier_
from cellsched.rpc import scheduler
from cellsched.scheduler import checking
from cellsched.scheduler.drivers import base


class Scheduler:
    """Answers ``select_destinations``, with hosts and not with cells.

    :param attempts_max: hosts to offer for each instance
    :param instances_max: instances that one request may ask for
    :param notifier: tells who listens of requests and of their success
    """

    target = oslo_messaging.Target(version=scheduler.VERSION)

    def __init__(
        self, driver: base.Driver, attempts_max: int, instances_max: int,
        notifier: notifier_.Notifier,
    ) -> None:
        self._driver = driver
        self._notifier = notifier
        self._attempts_max = attempts_max
        self._instances_max = instances_max

    @oslo_messaging.expected_exceptions(exception.CellschedException)
    def select_destinations(
        self, context: context_.RequestContext, spec_obj: Any,
        instance_uuids: Any, return_objects: bool = False,
        return_alternates: bool = False,
    ) -> list[Any]:
        """Choose and claim a host for each instance.

        :returns: with ``return_objects``, for each instance a list of
            selections: the host claimed, then its alternates if they are
            asked for; else for each a dict of host, nodename and limits
        :raises cellsched.exception.NoValidHost: with the reasons
        :raises cellsched.exception.InvalidField: names the field
        """
        checking.check(spec_obj, instance_uuids, self._instances_max)
        alternates = (self._attempts_max - 1
                      if return_objects and return_alternates else 0)
        self._notifier.select_destinations(
            context, 'start', spec_obj, instance_uuids)
        selections = self._driver.select_destinations(
            context, spec_obj, instance_uuids, alternates)
        self._notifier.select_destinations(
            context, 'end', spec_obj, instance_uuids)
        if return_objects:
            return selections
        return [first.to_dict() for first, *_ in selections]

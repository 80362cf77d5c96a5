# SPDX-License-Identifier: Apache-2.0
"""Notifications of a request, in both forms that Nova has."""

from collections.abc import Iterator
import contextlib
from typing import Any

from nova.compute import utils
from nova.objects import fields


@contextlib.contextmanager
def told(notifier: Any, context: Any, spec: Any) -> Iterator[None]:
    """Tell that a request begins, and that it is done, unless it fails.

    :param notifier: that of the messages without versions
    """
    for phase in fields.NotificationPhase.START, fields.NotificationPhase.END:
        notifier.info(
            context, f'scheduler.select_destinations.{phase}',
            {'request_spec': spec.to_legacy_request_spec_dict()})
        utils.notify_about_scheduler_action(
            context=context, request_spec=spec,
            action=fields.NotificationAction.SELECT_DESTINATIONS, phase=phase)
        if phase == fields.NotificationPhase.START:
            yield

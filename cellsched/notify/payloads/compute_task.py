# SPDX-License-Identifier: Apache-2.0
"""The payload of a task that was given up.

===================  ======================================================
Field                What it says
===================  ======================================================
``instance_uuid``    the server; ``instance_id`` in the unversioned form
``state``            the state that this leaves it in
``request_spec``     ``RequestSpecPayload``, as the scheduler tells it; null
                     where it is not known any more
``reason``           ``ExceptionPayload``; its text in the unversioned form
===================  ======================================================
"""

from typing import Any

from cellsched.notify.payloads import envelope
from cellsched.notify.payloads import failure
from cellsched.notify.payloads import request_spec
from cellsched import objects

COMPUTE_TASK = ('ComputeTaskPayload', '1.0')


def versioned(
    instance: objects.Instance, spec: objects.RequestSpec | None,
    reason: Exception, state: str | None,
) -> dict[str, Any]:
    """Return the payload of versioned notifications."""
    return envelope.wrap(*COMPUTE_TASK, {
        'instance_uuid': instance.uuid,
        'request_spec': spec and request_spec.versioned(
            spec, [instance.uuid]),
        'state': state,
        'reason': failure.versioned(reason),
    })


def legacy(
    method: str, instance: objects.Instance,
    spec: objects.RequestSpec | None, reason: Exception, state: str | None,
) -> dict[str, Any]:
    """Return the payload of unversioned notifications."""
    asked = {} if spec is None else request_spec.legacy(
        spec, [instance.uuid])['request_spec']
    return {
        'request_spec': asked,
        'instance_properties': asked.get('instance_properties', {}),
        'instance_id': instance.uuid,
        'state': state,
        'method': method,
        'reason': failure.text(reason),
    }

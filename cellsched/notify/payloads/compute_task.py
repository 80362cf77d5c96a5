# SPDX-License-Identifier: Apache-2.0
"""The payload of a failed conductor task.

===================  ======================================================
Field                Content
===================  ======================================================
``instance_uuid``    the server; ``instance_id`` in the unversioned form
``state``            the state of the server after the failure
``request_spec``     ``RequestSpecPayload``, as in the notifications of the
                     scheduler; null if the request was deleted
``reason``           ``ExceptionPayload``; its text in the unversioned form
===================  ======================================================
"""

import traceback
from types import TracebackType
from typing import Any

from cellsched import exception
from cellsched.notify.payloads import envelope
from cellsched.notify.payloads import request_spec
from cellsched import objects
from cellsched import urls


EXCEPTION = ('ExceptionPayload', '1.1')

#: Characters of a text, and of the end of a traceback.
TEXT_MAX = 4096
TRACEBACK_MAX = 16384


def exception_text(reason: BaseException) -> str:
    """Return the text of an error, without passwords."""
    if isinstance(reason, exception.CellschedException):
        value = reason.format_message()
    else:
        value = str(reason) or type(reason).__name__
    return urls.mask_text(value)[:TEXT_MAX]


def versioned_exception(reason: BaseException) -> dict[str, Any]:
    """Return the payload of an error."""
    module, function = _place(reason.__traceback__)
    return envelope.wrap(*EXCEPTION, {
        'module_name': module,
        'function_name': function,
        'exception': exception.kind_of(reason),
        'exception_message': exception_text(reason),
        'traceback': urls.mask_text(''.join(
            traceback.format_exception(reason)))[-TRACEBACK_MAX:],
    })


def _place(trace: TracebackType | None) -> tuple[str, str]:
    """Return the module and the function where an error was raised."""
    if trace is None:
        return 'unknown', 'unknown'
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    return frame.f_globals.get('__name__', 'unknown'), frame.f_code.co_name


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
        'reason': versioned_exception(reason),
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
        'reason': exception_text(reason),
    }

# SPDX-License-Identifier: Apache-2.0
"""The payload of an error.

It is for operators, so it is told in full: hosts by their names, and where it
came up. Passwords in URLs are not told.
"""

import traceback
from types import TracebackType
from typing import Any

from cellsched import exception
from cellsched.notify.payloads import envelope
from cellsched import urls

EXCEPTION = ('ExceptionPayload', '1.1')

#: Characters of a text, and of a traceback, of which the end is told.
TEXT_MAX = 4096
TRACEBACK_MAX = 16384


def text(reason: BaseException) -> str:
    """Return what an error says."""
    if isinstance(reason, exception.CellschedException):
        said = reason.format_message()
    else:
        said = str(reason) or type(reason).__name__
    return urls.mask_text(said)[:TEXT_MAX]


def versioned(reason: BaseException) -> dict[str, Any]:
    """Return the payload of an error."""
    module, function = _place(reason.__traceback__)
    return envelope.wrap(*EXCEPTION, {
        'module_name': module,
        'function_name': function,
        'exception': exception.kind_of(reason),
        'exception_message': text(reason),
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

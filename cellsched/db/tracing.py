# SPDX-License-Identifier: Apache-2.0
"""Comments in statements that name the code that executes them."""

import itertools
import traceback
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

#: Calls that are named, the innermost first.
_CALLS_MAX = 3


def listen(engine: sa.Engine) -> None:
    """Have an engine add a comment to each statement, for the server's log."""
    def before_cursor_execute(
        connection: sa.Connection, cursor: Any, statement: str,
        parameters: Any, context: Any, many: bool,
    ) -> tuple[str, Any]:
        return f'{statement}  -- {_calls()}', parameters

    event.listen(
        engine, 'before_cursor_execute', before_cursor_execute, retval=True)


def _calls() -> str:
    """Return the innermost calls outside of SQLAlchemy and this module."""
    frames = ((frame.f_globals.get('__name__', ''), frame.f_code.co_name, line)
              for frame, line in traceback.walk_stack(None))
    # Names of modules hold nothing that a driver takes for a parameter.
    return '; '.join(
        f'{module}.{function}:{line}'
        for module, function, line in itertools.islice((
            each for each in frames
            if each[0] != __name__
            and each[0].partition('.')[0] != 'sqlalchemy'), _CALLS_MAX))

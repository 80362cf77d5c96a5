# SPDX-License-Identifier: Apache-2.0
"""The step that gives up what was tried for too long."""

from collections.abc import Sequence
import datetime

from cellsched.conductor.tasks.build import Build
from cellsched.conductor.tasks.build import Outcome
from cellsched.conductor.tasks import saga
from cellsched.db import session
from cellsched import exception


class Expire(saga.Step):
    """Fail what was tried for too long.

    That is by the clock of the API database. Where it jumps, that is no
    reason to: what was accepted just now is tried some times before.

    :param database: the API database
    :param deadline_s: seconds since the request was accepted
    :param attempts: how often it is taken up at least
    """

    def __init__(
        self, database: session.Database, deadline_s: float, attempts: int
    ) -> None:
        self._database = database
        self._deadline_s = deadline_s
        self._attempts = attempts

    def do(self, builds: Sequence[Build]) -> None:
        now = self._database.timestamp()
        for build in builds:
            accepted = build.request.created_at.replace(tzinfo=datetime.UTC)
            if (build.tries > self._attempts
                    and now - accepted.timestamp() > self._deadline_s):
                build.end(
                    Outcome.FAILED, exception.BuildDeadlineExceeded(
                        seconds=round(self._deadline_s),
                        attempts=build.tries - 1,
                        reason=build.request.get('failure')
                        or 'It did not end.'))

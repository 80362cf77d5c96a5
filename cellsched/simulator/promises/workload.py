# SPDX-License-Identifier: Apache-2.0
"""Actions of users, drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import dataclasses
import functools
import random
from typing import Any

from cellsched import context
from cellsched import exception

USER = context.RequestContext(
    user_id='user', project_id='project', request_id='req-simulated',
    roles=['member', 'reader'])


@dataclasses.dataclass
class UserBatch:
    """The servers of one create request.

    :param uuids: the answer; empty before
    """

    flavor: str
    min_count: int
    max_count: int
    uuids: list[str] = dataclasses.field(default_factory=list)

    def find(self, place: int) -> str | None:
        """Return the uuid of one of the servers, or None before the answer."""
        return self.uuids[place] if self.uuids else None


@dataclasses.dataclass
class Action:
    """An operation of a user.

    :param find: returns the server, None before its uuid is known; None for
        an operation on no server
    :param not_before: the earliest time
    """

    name: str
    function: Callable[..., None]
    find: Callable[[], str | None] | None = None
    not_before: float = 0.0

    def is_possible(self) -> bool:
        return self.find is None or self.find() is not None

    def execute(self, api: Any) -> None:
        self.function(api, *([] if self.find is None else [self.find()]))


class Workload:
    """The operations of users in one run, and their results.

    :param chance: the random source
    """

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self.batches: list[UserBatch] = []
        #: Servers of delete requests, and servers whose deletion was
        #: confirmed.
        self.to_delete: set[str] = set()
        self.deleted: set[str] = set()
        #: Servers that were invisible at some time after the confirmation.
        self.hidden: set[str] = set()
        #: New names of servers; ``maybe`` before the answer.
        self.names: dict[str, str] = {}
        self.requests: list[Action] = []
        #: Servers of retry requests.
        self.retried: set[str] = set()
        for _ in range(chance.choice((1, 1, 2, 2, 3))):
            self._plan()
        for _ in range(chance.choice((0, 0, 1, 2))):
            self.requests.append(Action('list', self._list, not_before=(
                chance.choice((0.1, 0.3, 1.0, 60.0)))))

    def again(self) -> list[Action]:
        """Return unconfirmed deletions, to be repeated."""
        return [*map(self.deletion, sorted(self.to_delete - self.deleted))]

    def deletion(self, uuid: str) -> Action:
        """Return the deletion of a server."""
        return Action(f'delete {uuid}', self._delete, lambda: uuid)

    def _plan(self) -> None:
        chance = self._random
        most = chance.choice((1, 1, 1, 2, 3))
        batch = UserBatch(
            chance.choice(('small', 'small', 'large', 'large', 'huge')),
            chance.randint(1, most), most)
        self.batches.append(batch)
        number = len(self.batches)
        self.requests.append(Action(
            f'create {number}', lambda servers: self._create(servers, batch)))
        for place in range(most):
            # Plan the operations on this server.
            name, find = f'{number}.{place}', functools.partial(
                batch.find, place)
            requests = []
            if chance.random() < 0.3:
                requests += [Action(f'delete {name}', self._delete, find)
                             for _ in range(chance.choice((1, 1, 2)))]
            if chance.random() < 0.2:
                requests.append(Action(f'rename {name}', self._rename, find))
            if chance.random() < 0.15:
                requests.append(Action(f'retry {name}', self._retry, find))
            for request in requests:
                request.not_before = chance.choice((0.0, 0.0, 0.1, 0.5, 50.0))
            self.requests += requests

    def _create(self, servers: Any, batch: UserBatch) -> None:
        batch.uuids = servers.create(
            USER, 'server', batch.flavor, min_count=batch.min_count,
            max_count=batch.max_count)

    def _list(self, servers: Any) -> None:
        gone = set(self.hidden)
        shown = [each.uuid for each in servers.list(USER).servers]
        assert len(set(shown)) == len(shown), f'{shown} were listed'
        assert gone.isdisjoint(shown), f'{shown} were listed, {gone} are gone'

    def _rename(self, servers: Any, uuid: str) -> None:
        self.names[uuid] = 'maybe'
        try:
            servers.update(USER, uuid, 'renamed')
        except exception.InstanceNotFound:
            return
        self.names[uuid] = 'renamed'

    def _retry(self, servers: Any, uuid: str) -> None:
        self.retried.add(uuid)
        servers.retry(USER, uuid)

    def _delete(self, servers: Any, uuid: str) -> None:
        self.to_delete.add(uuid)
        # A concurrent deletion may be first.
        with contextlib.suppress(exception.InstanceNotFound):
            servers.delete(USER, uuid)
        self.deleted.add(uuid)

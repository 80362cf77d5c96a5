# SPDX-License-Identifier: Apache-2.0
"""Sizes of servers, by what was asked for them."""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import functools

from oslo_serialization import jsonutils

from cellsched import exception
from cellsched import objects

#: Different requests that are kept, for the next server that is like one.
_KEPT_MAX = 1000

#: Stands for the server's own uuid in what is kept.
_ITS_UUID = '00000000-0000-0000-0000-000000000000'


@dataclasses.dataclass(frozen=True)
class ServerSize:
    """The resources that a server is to take.

    :param resources: by resource class, besides those of groups; None where
        nobody knows
    :param group: uuid of the server group that it was asked for with
    :param problem: why nobody knows: ``is missing`` or ``cannot be read``
    :param grouped: by resource class what numbered groups take together; of
        which providers, only a scheduler decides
    """

    resources: Mapping[str, int] | None = None
    group: str | None = None
    problem: str = ''
    grouped: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def total(self) -> Mapping[str, int] | None:
        """Return all that it takes, of whatever provider."""
        if self.resources is None or not self.grouped:
            return self.resources
        return add_up([self.resources, self.grouped])


def add_up(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of amounts by resource class."""
    total: collections.Counter[str] = collections.Counter()
    for each in amounts:
        total.update(each)
    return dict(total)


MISSING = ServerSize(problem='is missing')
UNREADABLE = ServerSize(problem='cannot be read')


class Sizes:
    """Reads what was asked for, once for servers that are alike.

    Of one batch they are alike but for their uuids, and to read a request
    takes a hundred times as long as to see that it is the same.
    """

    def __init__(self) -> None:
        self._read = functools.lru_cache(_KEPT_MAX)(_read)

    def of(self, uuid: str, text: str | None) -> ServerSize:
        """Return the size of a server.

        :param text: its request specification as it is kept; None if there
            is none
        """
        if text is None:
            return MISSING
        return self._read(text.replace(uuid, _ITS_UUID))


def _read(text: str) -> ServerSize:
    try:
        spec = objects.RequestSpec.obj_from_primitive(jsonutils.loads(text))
        group = spec.get('instance_group')
        return ServerSize(
            spec.resources(), group.uuid if group else None,
            grouped=add_up(dict(each.resources)
                           for each in spec.group_demand().groups))
    except (*objects.READ_ERRORS, NotImplementedError,
            exception.InvalidField):
        # The second is raised for a field that is not there.
        return UNREADABLE

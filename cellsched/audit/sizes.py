# SPDX-License-Identifier: Apache-2.0
"""Sizes of servers, by what was asked for them."""

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

    :param resources: by resource class; None where nobody knows
    :param group: uuid of the server group that it was asked for with
    :param problem: why nobody knows: ``is missing`` or ``cannot be read``
    """

    resources: Mapping[str, int] | None = None
    group: str | None = None
    problem: str = ''


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
        return ServerSize(spec.resources(), group.uuid if group else None)
    except (*objects.READ_ERRORS, NotImplementedError,
            exception.InvalidField):
        # The second is raised for a field that is not there.
        return UNREADABLE

# SPDX-License-Identifier: Apache-2.0
"""The contract of a scheduler driver."""

import abc
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import ClassVar

from oslo_config import cfg

from cellsched import context as context_
from cellsched import objects


class Driver(abc.ABC):
    """Chooses hosts and claims them.

    Calls may come from several threads at a time.

    :param parts: what the process shares; see ``cellsched.assembly.Parts``
    """

    #: Where the options of :meth:`opts` are registered.
    group: ClassVar[str] = 'scheduler'

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        """Return the options that this driver reads, none by default."""
        return []

    def __init__(self, conf: cfg.ConfigOpts, parts: Any) -> None:
        self.conf = conf
        self.parts = parts

    def periodic(self) -> Sequence[tuple[Callable[[], None], float]]:
        """Return what is to be done all the time, none by default.

        Pairs of a function and the seconds between its calls.
        """
        return []

    @abc.abstractmethod
    def select_destinations(
        self, context: context_.RequestContext, request: objects.RequestSpec,
        instance_uuids: Sequence[str], alternates: int,
    ) -> list[list[objects.Selection]]:
        """Choose and claim a host for each instance, all of them or none.

        Must return one list for each instance, in order: the host that was
        claimed for it, then up to ``alternates`` others of the same cell that
        were not claimed and were chosen for no instance of the request.

        Asked again for instances whose claims stand, it must answer with the
        same hosts and take nothing more.

        :raises cellsched.exception.NoValidHost: with the reasons; nothing
            stays claimed. ``placed`` says for how many there was room.
        """

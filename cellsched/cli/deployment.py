# SPDX-License-Identifier: Apache-2.0
"""The interface through which commands read a deployment.

The commands ``plan``, ``capacity``, ``explain``, ``replay`` and ``host
export`` use nothing else, so that an application for another deployment, such
as one of Nova, can offer them.
"""

import abc
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Protocol
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cellsched.context import RequestContext
    from cellsched.db.api.decisions import DecisionRow
    from cellsched.hosts import document
    from cellsched import objects
    from cellsched.scheduler.decision.pipeline import Pipeline
    from cellsched.scheduler.explanation import decision_record
    from cellsched.scheduler import planning


#: Drivers that decide by the configured filters and weighers alone.
FILTERING = ('filter_scheduler', 'provider_scheduler')


class Planner(Protocol):
    """Decides as a scheduler does, and claims nothing."""

    def plan(
        self, context: 'RequestContext',
        request: 'objects.RequestSpec', uuids: Sequence[str], alternates: int,
        /,
    ) -> 'tuple[list[list[Any]], decision_record.Decision]':
        """Return the selected hosts of each server, and the decision.

        :returns: for each server the selected host and its alternates; an
            empty list if not all servers fit, and the decision has the reason
        """


class ReadDeployment(abc.ABC):
    """A deployment that commands read.

    Each method may block. The application reports the errors.

    :ivar retention_option: the option with the retention of decisions
    """

    retention_option: str

    @property
    @abc.abstractmethod
    def retention_s(self) -> int:
        """Seconds for which decisions are kept; 0 if they are not kept."""

    @property
    @abc.abstractmethod
    def hints(self) -> frozenset[str] | None:
        """The scheduler hints that a request may have; None if unlimited."""

    @abc.abstractmethod
    def cells(self) -> Mapping[str, str]:
        """Return the names of cells, by uuid."""

    @abc.abstractmethod
    def flavor(self, name: str) -> 'objects.Flavor':
        """Return a flavor.

        :param name: its id or name
        :raises cellsched.exception.FlavorNotFound: the flavor does not exist
        """

    @abc.abstractmethod
    def server_group(self, uuid: str) -> 'objects.InstanceGroup':
        """Return a server group.

        :raises cellsched.exception.InstanceGroupNotFound: the group does not
            exist
        """

    @abc.abstractmethod
    def snapshot(self) -> 'document.HostDocument':
        """Return the hosts as they are now."""

    def claims_on(
        self, host: str, provider: str
    ) -> Mapping[str, Mapping[str, int]]:
        """Return the claims of a host's servers on a provider, by server.

        Empty if the deployment does not know them.
        """
        return {}

    @abc.abstractmethod
    def planner(
        self, snapshot: 'document.HostDocument | None' = None
    ) -> Planner:
        """Return a planner on the hosts as they are now.

        :param snapshot: the hosts to use instead
        """

    @abc.abstractmethod
    def capacity(
        self, snapshot: 'document.HostDocument',
        request: 'objects.RequestSpec',
    ) -> 'planning.Capacity':
        """Return how many more servers of one kind fit, and the rejections.

        :param snapshot: the hosts, of this deployment or of a file
        :raises cellsched.exception.InvalidField: a field of the request is
            invalid, or no enabled filter supports it
        """

    def pipeline(self) -> 'Pipeline | None':
        """Return the filters and weighers for recorded requests.

        None means those of the options.
        """
        return None

    def has_server(self, name: str) -> bool:
        """Return False if no server and no request has a name or an id.

        True means that a server may exist.
        """
        return True

    @abc.abstractmethod
    def decisions(self, name: str, limit: int | None) -> 'list[DecisionRow]':
        """Return the decisions on a server or a request, the newest first.

        :param name: the name or the uuid of a server, or the id of a request
        """

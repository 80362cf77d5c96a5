# SPDX-License-Identifier: Apache-2.0
"""What an agent is told to build."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from oslo_serialization import jsonutils

from cellsched import context as context_
from cellsched.db.cell import build_casts
from cellsched import objects
from cellsched.rpc import serializer


@dataclasses.dataclass(frozen=True)
class Order:
    """A build on this host.

    :param spec: the request spec, or None where nothing was kept
    :param properties: what goes along from one try to the next
    :param hosts: what is left to try if this host fails
    :param provider: what was claimed for it here, where that is known
    """

    context: context_.RequestContext
    instance: objects.Instance
    spec: Any
    properties: Mapping[str, Any]
    node: str
    hosts: Sequence[objects.Selection]
    provider: str | None = None

    @property
    def retry(self) -> Mapping[str, Any] | None:
        """What was tried so far, or None if nothing else may be tried."""
        return self.properties.get('retry') or None

    @property
    def tried(self) -> int | None:
        """The number of this try, or None where nobody said."""
        return None if self.retry is None else self.retry['num_attempts']

    @property
    def requested_networks(self) -> Any:
        """The networks that the user wished for, or None."""
        return None if self.spec is None else self.spec.get(
            'requested_networks')

    def failed(self, reason: Exception) -> dict[str, Any]:
        """Return the properties for the next try."""
        return {**self.properties, 'retry': {
            **(self.retry or {}), 'exc_reason': str(reason)}}


def kept(
    instance: objects.Instance, cast: build_casts.BuildCast | None
) -> Order:
    """Return the order that was kept of a build.

    :param instance: as its row says it is
    :param cast: None if nothing was kept; it may be tried nowhere else then.
        The first of its selections is this host
    """
    said: dict[str, Any] = {}
    if cast is not None:
        said = serializer.Serializer().deserialize_entity(
            None, jsonutils.loads(cast.message))
    first, *hosts = said.get('selections') or [None]
    return Order(
        context_.of_owner(instance), instance, said.get('request_spec'),
        said.get('filter_properties') or {}, instance.node or '',
        hosts, first and first.compute_node_uuid)

# SPDX-License-Identifier: Apache-2.0
"""The message that has a compute host build an instance."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from oslo_serialization import jsonutils

from cellsched.db.cell import build_casts
from cellsched import objects


@dataclasses.dataclass(frozen=True)
class BuildMessage:
    """The arguments of ``build_and_run_instance`` but for the instance.

    :param chosen: the place where it is to be built
    :param host_list: the places that are left to try if this one fails
    :param filter_properties: what goes along from one try to the next
    """

    chosen: objects.Selection
    host_list: Sequence[objects.Selection]
    request_spec: objects.RequestSpec | None
    filter_properties: Mapping[str, Any]

    @classmethod
    def first(
        cls, selections: Sequence[objects.Selection],
        request_spec: objects.RequestSpec | None,
    ) -> 'BuildMessage':
        """Return the message for the first of the places to try."""
        chosen, *alternates = selections
        return cls(chosen, alternates, request_spec, {
            'retry': {'num_attempts': 1,
                      'hosts': [[chosen.service_host, chosen.nodename]]},
            'limits': chosen.to_dict()['limits']})

    @classmethod
    def read(cls, cast: build_casts.BuildCast) -> 'BuildMessage':
        """Return what was kept in a cell."""
        kept = jsonutils.loads(cast.message)
        spec = kept['request_spec']
        chosen, *host_list = (
            objects.Selection.obj_from_primitive(each)
            for each in kept['selections'])
        return cls(
            chosen, host_list,
            spec and objects.RequestSpec.obj_from_primitive(spec),
            kept['filter_properties'])

    def kept(self, uuid: str, now: float) -> build_casts.BuildCast:
        """Return it as a cell keeps it.

        :param now: in seconds since the epoch
        """
        return build_casts.BuildCast(
            instance_uuid=uuid, host=self.chosen.service_host,
            node=self.chosen.nodename, cast_at=now,
            message=jsonutils.dumps({
                'selections': [each.obj_to_primitive() for each
                               in (self.chosen, *self.host_list)],
                'request_spec': (self.request_spec
                                 and self.request_spec.obj_to_primitive()),
                'filter_properties': self.filter_properties}))

    def arguments(self) -> dict[str, Any]:
        """Return what the RPC client is called with, by name."""
        return {
            'host': self.chosen.service_host, 'node': self.chosen.nodename,
            'request_spec': self.request_spec,
            'filter_properties': self.filter_properties,
            'limits': self.filter_properties['limits'],
            'host_list': list(self.host_list)}

    @property
    def retry(self) -> Mapping[str, Any] | None:
        """The tries so far, or None if nothing else may be tried."""
        return self.filter_properties.get('retry') or None

    @property
    def tried(self) -> int | None:
        """The number of this try, or None where nobody said."""
        return None if self.retry is None else self.retry['num_attempts']

    @property
    def requested_networks(self) -> Any:
        """The networks that the user wished for, or None."""
        return None if self.request_spec is None else self.request_spec.get(
            'requested_networks')

    def failed(self, reason: Exception) -> dict[str, Any]:
        """Return the filter properties for the next try."""
        return {**self.filter_properties, 'retry': {
            **(self.retry or {}), 'exc_reason': str(reason)}}

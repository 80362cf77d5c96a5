# SPDX-License-Identifier: Apache-2.0
"""What a compute host is told of a build, to be told again if need be."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from oslo_serialization import jsonutils

from cellsched import context as context_
from cellsched.db.cell import build_casts
from cellsched import objects
from cellsched.rpc import compute as compute_rpc


@dataclasses.dataclass(frozen=True)
class Order:
    """The arguments of ``build_and_run_instance`` but for the instance.

    :param host_list: the places that are left to try if this one fails
    """

    chosen: objects.Selection
    host_list: Sequence[objects.Selection]
    request_spec: objects.RequestSpec | None
    filter_properties: Mapping[str, Any]

    @classmethod
    def first(
        cls, selections: Sequence[objects.Selection],
        request_spec: objects.RequestSpec | None,
    ) -> 'Order':
        """Return the order for the first of the places to try."""
        chosen, *alternates = selections
        return cls(chosen, alternates, request_spec, {
            'retry': {'num_attempts': 1,
                      'hosts': [[chosen.service_host, chosen.nodename]]},
            'limits': chosen.to_dict()['limits']})

    @classmethod
    def read(cls, cast: build_casts.BuildCast) -> 'Order':
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

    def send(
        self, context: context_.RequestContext,
        compute: compute_rpc.ComputeAPI, instance: objects.Instance,
    ) -> None:
        """Tell the host, on its cell's transport."""
        compute.build_and_run_instance(
            context, host=self.chosen.service_host, instance=instance,
            request_spec=self.request_spec,
            filter_properties=self.filter_properties,
            node=self.chosen.nodename,
            limits=self.filter_properties['limits'],
            host_list=list(self.host_list))

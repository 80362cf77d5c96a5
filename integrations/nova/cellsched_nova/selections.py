# SPDX-License-Identifier: Apache-2.0
"""Chosen hosts, as Nova is told of them."""

from typing import Any

from nova import objects as nova_objects
from oslo_serialization import jsonutils

from cellsched.hosts import view
from cellsched_nova import candidates
from cellsched_nova import choosing
from cellsched_nova import rows


def make(
    hosts: view.Hosts, chosen: choosing.ChosenHost, states: rows.HostStates
) -> Any:
    """Return Nova's object of a host that was chosen, or an alternate."""
    uuid, host, nodename, cell, zone = hosts.values_at(
        chosen.row, 'uuid', 'host', 'nodename', 'cell', 'availability_zone')
    state = states.get(uuid)
    limits = {**({} if state is None else state.limits), **chosen.limits}
    wanted = chosen.allocation_request
    return nova_objects.Selection(
        compute_node_uuid=uuid, service_host=host, nodename=nodename,
        cell_uuid=cell,
        limits=nova_objects.SchedulerLimits.from_dict(limits),
        allocation_request=jsonutils.dumps(wanted),
        allocation_request_version=(
            None if wanted is None else candidates.VERSION),
        availability_zone=zone)

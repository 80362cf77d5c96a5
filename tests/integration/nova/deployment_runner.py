# SPDX-License-Identifier: Apache-2.0
"""Run Nova's databases and Placement, with some hosts.

Nova's python runs this script, with the directory of the peers' modules. This
project's scheduler decides on two requests; one of them fits no host. The
script prints a line of JSON with the path of ``nova.conf`` and the uuids of
both servers, and ends with its standard input.
"""

import native  # noqa: F401

import json
import sys
import uuid

from nova import context
from nova import exception
from nova import objects
import oslo_messaging

from cellsched_nova import manager
import contents
import deployment
import nova_select

#: Numbers of hosts and of cells.
HOSTS, CELLS = 4, 2


def main():
    hosts = contents.make_hosts(HOSTS, CELLS)
    with deployment.deployed(hosts, workers=1, threads=4) as deployed:
        make_flavor()
        decided = decide()
        print(json.dumps({'conf': str(deployed.conf), **decided}), flush=True)
        sys.stdin.read()


def make_flavor():
    objects.Flavor(
        context.get_admin_context(), flavorid='4', name='m1.large',
        memory_mb=8192, vcpus=4, root_gb=80, ephemeral_gb=0, swap=0,
        rxtx_factor=1.0, is_public=True, disabled=False,
        extra_specs={'trait:COMPUTE_NODE': 'required'}).create()


def decide():
    """Return the uuids of a server with a host and of one without."""
    scheduler = manager.ColumnSchedulerManager()
    scheduler.init_host(None)
    placed, refused = str(uuid.uuid4()), str(uuid.uuid4())
    select(scheduler, placed)
    try:
        select(scheduler, refused, memory_mb=2 ** 30)
    except oslo_messaging.ExpectedException as exc:
        assert exc.exc_info[0] is exception.NoValidHost
    # The shutdown writes the decisions to the database.
    scheduler.graceful_shutdown(0)
    return {'placed': placed, 'refused': refused}


def select(scheduler, server, **flavor):
    requester = context.RequestContext('user', 'project', is_admin=True)
    scheduler.select_destinations(
        requester,
        spec_obj=nova_select.make_request(requester, [server], flavor),
        instance_uuids=[server], return_objects=True)


if __name__ == '__main__':
    sys.exit(main())

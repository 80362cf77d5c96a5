# SPDX-License-Identifier: Apache-2.0
"""Run Nova's databases and Placement, which know some hosts, for a while.

Nova's python runs this, with the directory of the peers' modules. It has this
project's scheduler decide on two requests, one of which fits nowhere, prints
a line of JSON with the path of ``nova.conf`` and the uuids of both, and ends
with its standard input.
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

#: Hosts in so many cells.
HOSTS, CELLS = 4, 2


def main():
    with deployment.deployed(
            contents.make_hosts(HOSTS, CELLS), workers=1, threads=4) as there:
        make_flavor()
        decided = decide()
        print(json.dumps({'conf': str(there.conf), **decided}), flush=True)
        sys.stdin.read()


def make_flavor():
    objects.Flavor(
        context.get_admin_context(), flavorid='4', name='m1.large',
        memory_mb=8192, vcpus=4, root_gb=80, ephemeral_gb=0, swap=0,
        rxtx_factor=1.0, is_public=True, disabled=False,
        extra_specs={'trait:COMPUTE_NODE': 'required'}).create()


def decide():
    """Return the server that has a host, and the one that has none."""
    scheduler = manager.ColumnSchedulerManager()
    placed, refused = str(uuid.uuid4()), str(uuid.uuid4())
    select(scheduler, placed)
    try:
        select(scheduler, refused, memory_mb=2 ** 30)
    except oslo_messaging.ExpectedException as exc:
        assert exc.exc_info[0] is exception.NoValidHost
    # What was recorded is written before it ends.
    scheduler.graceful_shutdown(0)
    return {'placed': placed, 'refused': refused}


def select(scheduler, server, **flavor):
    asking = context.RequestContext('user', 'project', is_admin=True)
    scheduler.select_destinations(
        asking, spec_obj=nova_select.make_request(asking, [server], flavor),
        instance_uuids=[server], return_objects=True)


if __name__ == '__main__':
    sys.exit(main())

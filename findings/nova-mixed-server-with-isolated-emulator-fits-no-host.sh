#!/usr/bin/env bash
# Nova accepts a flavor of mixed CPUs with an isolated emulator whose first
# NUMA cell has no dedicated CPU, and asks Placement for one PCPU more. Its fit
# then refuses every host, however empty: it demands the emulator's CPU in the
# first guest cell, and reserves none in a cell without pinned CPUs. The same
# holds for the thread policy isolate and any cell without dedicated CPUs.
#
# Guess, logged before the run: the server fits on an empty host; one free CPU
# is demanded in the first cell, and none is reserved there. With the thread
# policy isolate, a cell without dedicated CPUs needs a free core only.
# Seen: nova 34.0.0: numa_get_constraints() returns the topology,
# numa_fit_instance_to_host() returns None. With the dedicated CPUs in the
# first cell, or without isolation, the same host takes the server.
#
# Needs python3 of 3.11 or later with venv.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip --quiet --disable-pip-version-check install --no-compile \
    nova==34.0.0
OS_NOVA_DISABLE_EVENTLET_PATCHING=true venv/bin/python -W ignore - <<'PYTHON'
import importlib.metadata
import sys

import nova.conf
from nova import objects
from nova.scheduler import utils
from nova.virt import hardware

objects.register_all()
print('nova', importlib.metadata.version('nova'))


def cell(number):
    cpus = set(range(number * 8, number * 8 + 8))
    return objects.NUMACell(
        id=number, cpuset={cpu for cpu in cpus if cpu % 2},
        pcpuset={cpu for cpu in cpus if not cpu % 2}, memory=8192,
        cpu_usage=0, memory_usage=0, pinned_cpus=set(), mempages=[],
        siblings=[{cpu} for cpu in cpus], socket=0)


def is_placed(mask, **specs):
    flavor = objects.Flavor(
        id=1, flavorid='1', name='mixed', vcpus=4, memory_mb=1024, root_gb=1,
        ephemeral_gb=0, swap=0, extra_specs={
            'hw:numa_nodes': '2', 'hw:cpu_policy': 'mixed',
            'hw:cpu_dedicated_mask': mask,
            **{f'hw:{name}': value for name, value in specs.items()}})
    image = objects.ImageMeta(properties=objects.ImageMetaProps())
    topology = hardware.numa_get_constraints(flavor, image)
    asked = utils.ResourceRequest.from_request_spec(objects.RequestSpec(
        flavor=flavor, image=image, numa_topology=topology, is_bfv=False))
    host = objects.NUMATopology(cells=[cell(0), cell(1)])
    placed = hardware.numa_fit_instance_to_host(host, topology, None)
    print('dedicated', mask, specs, 'asks', asked.merged_resources(),
          'placed' if placed else 'refused')
    return bool(placed)


seen = [is_placed('0-1', emulator_threads_policy='isolate'),
        is_placed('2-3', emulator_threads_policy='isolate'),
        is_placed('2-3'),
        is_placed('2-3', cpu_thread_policy='isolate'),
        is_placed('0,2', cpu_thread_policy='isolate')]
if seen != [True, False, True, False, True]:
    sys.exit('This differs from what the comment says.')
PYTHON

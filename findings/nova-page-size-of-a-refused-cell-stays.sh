#!/usr/bin/env bash
# A flavor with hw:mem_page_size=large has no fixed page size. Nova selects the
# size on the first NUMA cell that it tries, before it looks at the CPUs of this
# cell. If the CPUs do not suffice, the size stays for the next cells. The host
# is then refused, although another cell has the CPUs and the memory in pages of
# another size. With [compute]
# packing_host_numa_cells_allocation_strategy, the fullest cell is tried first,
# so that equal cells suffice for this.
#
# Guess, logged before the run: a server with one cell is judged for each cell
# of the host by itself. Only the order of the cells depends on the option, and
# not the verdict.
# Seen: nova 34.0.0: numa_fit_instance_to_host() returns None with packing, and
# the cell 1 with pages of 2 MiB without. With the size 2MB in place of large,
# it returns the cell 1 in both cases.
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
from nova.virt import hardware

objects.register_all()
print('nova', importlib.metadata.version('nova'))


def pages(size_kb, total, used):
    return objects.NUMAPagesTopology(
        size_kb=size_kb, total=total, used=used, reserved=0)


def cell(number, pinned, huge):
    cpus = set(range(number * 4, number * 4 + 4))
    return objects.NUMACell(
        id=number, cpuset=set(), pcpuset=cpus, memory=8192, cpu_usage=0,
        memory_usage=huge * 1024, pinned_cpus=set(sorted(cpus)[:pinned]),
        siblings=[{cpu} for cpu in cpus], socket=0,
        mempages=[pages(4, 524288, 0), pages(2048, 1024, 0),
                  pages(1048576, 4, huge)])


def placed(packs, size):
    nova.conf.CONF.set_override(
        'packing_host_numa_cells_allocation_strategy', packs, 'compute')
    topology = hardware.numa_get_constraints(
        objects.Flavor(
            id=1, flavorid='1', name='large', vcpus=3, memory_mb=1024,
            root_gb=1, ephemeral_gb=0, swap=0, extra_specs={
                'hw:cpu_policy': 'dedicated', 'hw:mem_page_size': size}),
        objects.ImageMeta(properties=objects.ImageMetaProps()))
    # Cell 0 has two free CPUs. Cell 1 has four, and no free page of 1 GiB.
    host = objects.NUMATopology(cells=[cell(0, 2, 0), cell(1, 0, 4)])
    found = hardware.numa_fit_instance_to_host(host, topology, None)
    verdict = found and [(each.id, each.pagesize) for each in found.cells]
    print('packing', packs, 'page size', size, 'placed', verdict)
    return verdict


seen = [placed(packs, size) for size in ('large', '2MB')
        for packs in (False, True)]
if seen != [[(1, 2048)], None, [(1, 2048)], [(1, 2048)]]:
    sys.exit('This differs from what the comment says.')
PYTHON

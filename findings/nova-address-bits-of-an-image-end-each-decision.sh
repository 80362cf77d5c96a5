#!/usr/bin/env bash
# The image property hw_maxphysaddr_bits asks for hosts whose CPUs address as
# many bits of memory. Nova's ImagePropertiesFilter compares it with the bits in
# the CPU information of a host. Compute services report this as a JSON text,
# and the scheduler passes the text on to its filters as it is. The filter reads
# it as a mapping.
#
# Guess, logged before the run: a host that reports 46 bits passes, one with 36
# does not, and one that reports none passes.
# Seen: nova 34.0.0: each of the three ends the decision with AttributeError, so
# no server with this property is placed. With the same information as a mapping
# in place of the text, the filter answers as guessed. Without another property
# that the filter compares with supported instances, the property has no effect.
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
import json
import sys

from nova import objects
from nova.scheduler.filters import image_props_filter
from nova.scheduler import host_manager

objects.register_all()
print('nova', importlib.metadata.version('nova'))
FILTER = image_props_filter.ImagePropertiesFilter()


def verdict(bits, properties, as_text=True):
    information = {'arch': 'x86_64'}
    if bits:
        information['maxphysaddr'] = {'mode': 'emulate', 'bits': bits}
    host = host_manager.HostState('host', 'host', 'cell')
    host.cpu_info = json.dumps(information) if as_text else information
    host.supported_instances = [['x86_64', 'kvm', 'hvm']]
    host.hypervisor_version = 9000000
    request = objects.RequestSpec(image=objects.ImageMeta.from_dict({
        'id': 'image', 'properties': {
            'hw_maxphysaddr_mode': 'emulate', 'hw_maxphysaddr_bits': '40',
            **properties}}))
    try:
        found = FILTER.host_passes(host, request)
    except AttributeError as exc:
        found = type(exc).__name__
    print('bits of the host', bits, *properties,
          'text' if as_text else 'mapping', found)
    return found


architecture = {'hw_architecture': 'x86_64'}
seen = [[verdict(bits, *rest) for bits in (46, 36, None)]
        for rest in ((architecture,), (architecture, False), ({},))]
# This is what the scheduler has: the attribute of a row, which is a text.
field = type(objects.ComputeNode.fields['cpu_info']).__name__
print('cpu_info of a compute node is a', field)
if field != 'StringField' or seen != [
        ['AttributeError'] * 3, [True, False, True], [True] * 3]:
    sys.exit('This differs from what the comment says.')
PYTHON

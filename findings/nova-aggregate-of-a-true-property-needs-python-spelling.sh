#!/usr/bin/env bash
# With AggregateImagePropertiesIsolation, the metadata of an aggregate and an
# image with the same property and the same value belong together. Nova converts
# the properties that it knows: texts become booleans and whole numbers. The
# filter then converts them back, and compares the result with the metadata,
# which stays as the operator wrote it.
#
# Guess, logged before the run: an image with hw_boot_menu=true may use the hosts
# of an aggregate with hw_boot_menu=true, and no other spelling is needed.
# Seen: nova 34.0.0: the hosts are refused. "true", "yes" and "1" match on no
# image, and only "True" does, for images with any of these values. An image
# with "false" may use the hosts of each of these aggregates. "02" does not match
# "02", but 2. Properties that are texts or unknown to Nova match as written.
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

from nova import objects
from nova.scheduler.filters import aggregate_image_properties_isolation
from nova.scheduler import host_manager

objects.register_all()
print('nova', importlib.metadata.version('nova'))
FILTER = aggregate_image_properties_isolation.AggregateImagePropertiesIsolation()


def matches(name, of_image, of_aggregate):
    host = host_manager.HostState('host', 'host', 'cell')
    host.aggregates = [objects.Aggregate(
        id=1, hosts=['host'], metadata={name: of_aggregate})]
    request = objects.RequestSpec(image=objects.ImageMeta.from_dict({
        'id': 'image', 'properties': {name: of_image}}))
    found = FILTER.host_passes(host, request)
    print(name, 'image', of_image, 'aggregate', of_aggregate, found)
    return found


spellings = ('true', 'yes', '1', 'True')
seen = [[matches('hw_boot_menu', of_image, each) for each in spellings]
        for of_image in ('true', 'yes', 'True', 'false')]
numbers = [matches('hw_cpu_sockets', '02', each) for each in ('02', '2')]
texts = [matches('os_distro', 'ubuntu', each) for each in ('ubuntu', 'debian')]
if (seen != [[False, False, False, True]] * 3 + [[True] * 4]
        or numbers != [False, True] or texts != [True, False]):
    sys.exit('This differs from what the comment says.')
PYTHON

# SPDX-License-Identifier: Apache-2.0
"""Print the traits that Nova requires for requests, as lines of JSON.

The python of Nova's environment runs this script. An input line has
``extra_specs``, ``properties`` and ``disk_format`` of an image, ``is_bfv``,
and ``options`` of ``[scheduler]``. The output line has the names of the
required traits, or null if Nova refuses the request.
"""

import json
import sys

from nova import config
from nova import context
from nova import exception
from nova import objects
from nova.scheduler import request_filter
from nova.scheduler import utils

CONF = config.CONF

#: The request filters without requests to databases and services.
FILTERS = (
    request_filter.require_image_type_support,
    request_filter.transform_image_metadata,
    request_filter.packed_virtqueue_filter,
    request_filter.ephemeral_encryption_filter,
    request_filter.virtio_sound_filter,
    request_filter.tpm_secret_security_filter)


def main():
    CONF([], project='nova', default_config_files=[], default_config_dirs=[])
    objects.register_all()
    for line in sys.stdin:
        print(json.dumps(required(**json.loads(line))), flush=True)


def required(extra_specs, properties, disk_format, is_bfv, options):
    for name, value in options.items():
        CONF.set_override(name, value, group='scheduler')
    spec = objects.RequestSpec(
        flavor=objects.Flavor(
            name='small', vcpus=1, memory_mb=512, root_gb=1, ephemeral_gb=0,
            swap=0, extra_specs=extra_specs),
        image=objects.ImageMeta.from_dict({
            'name': 'image', 'disk_format': disk_format,
            'properties': properties}),
        is_bfv=is_bfv, requested_resources=[],
        request_level_params=objects.RequestLevelParams())
    try:
        for each in FILTERS:
            each(context.get_admin_context(), spec)
        resources = utils.ResourceRequest.from_request_spec(spec)
    except (exception.NovaException, ValueError):
        return None
    return sorted(spec.root_required | resources.all_required_traits)


if __name__ == '__main__':
    main()

# SPDX-License-Identifier: Apache-2.0
"""Print Nova's options about decisions and quotas, with their defaults.

This is run by the python of Nova's environment, and nothing else here imports
it. What it prints is kept in ``tests/unit/conf/nova-34-options.json``.
"""

import json

from nova.conf import quota
from nova.conf import scheduler


def main():
    groups = {}
    for module in (scheduler, quota):
        for group, options in module.list_opts().items():
            groups[group.name] = {
                option.dest: option.default for option in options}
    print(json.dumps(groups, indent=1, sort_keys=True))


if __name__ == '__main__':
    main()

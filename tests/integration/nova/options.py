# SPDX-License-Identifier: Apache-2.0
"""Print Nova's options for decisions and quotas, with their defaults.

The python of Nova's environment runs this script. Its output is stored in
``tests/unit/conf/nova-34-options.json``.
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

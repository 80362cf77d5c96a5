# SPDX-License-Identifier: Apache-2.0
"""Print Nova's options, with their defaults and their older names.

The python of Nova's environment runs this script. Its output is stored in
``tests/unit/conf/nova-34-options.json``.
"""

import json

from nova.conf import opts


def main():
    defaults, older = {}, {}
    for group, options in opts.list_opts():
        group = getattr(group, 'name', group)
        for option in options:
            # A sample replaces a default that depends on the machine.
            defaults.setdefault(group, {})[option.dest] = (
                option.sample_default or option.default)
            for old in option.deprecated_opts:
                older[f'[{old.group or group}] {old.name or option.dest}'] = (
                    f'[{group}] {option.dest}')
    print(json.dumps({'defaults': defaults, 'older': older}, indent=1,
                     sort_keys=True))


if __name__ == '__main__':
    main()

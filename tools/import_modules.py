# SPDX-License-Identifier: Apache-2.0
"""Import each module of the project; name those that cannot be imported."""

import importlib
import pkgutil
import sys

import cellsched


def main() -> int:
    failures = []
    for module in pkgutil.walk_packages(
            cellsched.__path__, 'cellsched.', failures.append):
        # Those of processes do what they are for, when they are imported.
        if module.name.endswith('.__main__'):
            continue
        try:
            importlib.import_module(module.name)
        except Exception as exc:
            failures.append(f'{module.name}: {type(exc).__name__}: {exc}')
    print('\n'.join(failures), end='')
    return bool(failures)


if __name__ == '__main__':
    sys.exit(main())

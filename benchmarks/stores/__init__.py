# SPDX-License-Identifier: Apache-2.0
"""Claim stores to be measured, with their servers, a module for each kind.

To add one, write a module with a class as ``base`` describes it, and name it
in :data:`KINDS`. What it needs is imported when it is asked for, so that a
store is measured where others are not installed.
"""

import importlib

#: Where the class of each is.
KINDS = {
    'sqlite': 'sql:SQLite',
    'postgresql': 'sql:PostgreSQL',
    'mariadb': 'sql:MariaDB',
    'etcd': 'etcd:Etcd',
    'cassandra': 'cassandra:Cassandra',
    'placement': 'placement:Placement',
    'placement-no-retry': 'placement:PlacementNoRetry',
}


def kind(name):
    """Return the kind of a name.

    :raises ValueError: there is none
    :raises ImportError: something that it needs is not installed
    """
    if name not in KINDS:
        raise ValueError(f'{name}: expected one of {", ".join(KINDS)}')
    module, _, class_name = KINDS[name].partition(':')
    return getattr(importlib.import_module(f'stores.{module}'), class_name)()

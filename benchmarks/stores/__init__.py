# SPDX-License-Identifier: Apache-2.0
"""The measured claim stores with their servers, a module for each kind.

To add a store, write a module with a subclass of ``base.Kind``, and add it to
:data:`KINDS`. Modules are imported on demand, so that a store can be measured
while the requirements of others are missing.
"""

import importlib

#: The module and the class of each store.
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
    """Return the kind with this name.

    :raises ValueError: there is no such kind
    :raises ImportError: a requirement of the kind is not installed
    """
    if name not in KINDS:
        raise ValueError(f'{name}: expected one of {", ".join(KINDS)}')
    module, _, class_name = KINDS[name].partition(':')
    return getattr(importlib.import_module(f'stores.{module}'), class_name)()

# SPDX-License-Identifier: Apache-2.0
"""Claim stores: the claims of instances on resource providers.

``base`` is the contract. Plug-ins: ``memory``, ``sql``, ``etcd``,
``cassandra`` and ``placement``. To add one, subclass ``base.ClaimStore``,
add it to the entry points of ``cellsched.claims``, and inherit
``cellsched.testing.suite.claims`` in its test.
"""

from oslo_config import cfg

from cellsched.claims import base
from cellsched.conf import enabled
from cellsched import exception
from cellsched import plugins


def load(conf: cfg.ConfigOpts, parts: base.ClaimStoreParts) -> base.ClaimStore:
    """Return the store that a deployment configures.

    :raises cellsched.exception.ConfigurationInvalid: names the field: there
        is no such store, or it lacks a capability that ``require`` lists
    """
    name = conf.claims.store
    required = [_capability(text) for text in conf.claims.require]
    store = enabled.load(conf, plugins.CLAIMS, base.ClaimStore)
    missing = [each.value for each in required
               if each not in store.capabilities]
    if missing:
        raise exception.ConfigurationInvalid(
            field='[claims] store',
            problem=f'{name} lacks {" and ".join(missing)}',
            expected='a store with the capabilities in [claims] require')
    return enabled.contained(
        conf, plugins.CLAIMS, lambda: store.from_conf(conf, parts))


def _capability(text: str) -> base.Capability:
    try:
        return base.Capability(text.lower())
    except ValueError:
        names = ', '.join(each.value for each in base.Capability)
        raise exception.ConfigurationInvalid(
            field='[claims] require',
            problem=f'unknown capability in {text!r}',
            expected=f'some of {names}') from None

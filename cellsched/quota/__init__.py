# SPDX-License-Identifier: Apache-2.0
"""Quotas: how much a project may have.

``base`` is the contract, every other module a driver. To add one, subclass
``base.QuotaDriver``, or ``db.DbQuotaDriver`` with another ``limits_of`` where
only the limits come from elsewhere, and name it in the entry points of
``cellsched.quota``.
"""

from oslo_config import cfg

from cellsched.conf import enabled
from cellsched import plugins
from cellsched.quota import base


def load(conf: cfg.ConfigOpts, clock: base.QuotaClock) -> base.QuotaDriver:
    """Return the driver that a deployment configures.

    :raises cellsched.exception.ConfigurationInvalid: there is none of that
        name that can be used
    """
    return enabled.make(conf, plugins.QUOTA, base.QuotaDriver, conf, clock)

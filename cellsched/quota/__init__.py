# SPDX-License-Identifier: Apache-2.0
"""Quotas: limits on the resources of a project.

``base`` is the contract, and each other module a driver. To add a driver,
subclass ``base.QuotaDriver`` and name it in the entry points of
``cellsched.quota``. If only the limits come from another source, subclass
``db.DbQuotaDriver`` with another ``limits_of``.
"""

from oslo_config import cfg

from cellsched.conf import enabled
from cellsched import plugins
from cellsched.quota import base


def load(conf: cfg.ConfigOpts, clock: base.QuotaClock) -> base.QuotaDriver:
    """Return the configured driver.

    :raises cellsched.exception.ConfigurationInvalid: no usable driver has that
        name
    """
    return enabled.make(conf, plugins.QUOTA, base.QuotaDriver, conf, clock)

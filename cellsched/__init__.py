# SPDX-License-Identifier: Apache-2.0
"""Scheduling of server builds in clouds that are partitioned into cells.

The layers of this package, from the lowest, are drawn in the contributor
guide ("Architecture"); ``.importlinter`` keeps their order.
"""

from oslo_service import backend

# oslo.messaging picks a concurrency back end when it is imported. This says
# which one, and still lets a host application choose first.
backend.register_backend_default_hook(lambda: backend.BackendType.THREADING)

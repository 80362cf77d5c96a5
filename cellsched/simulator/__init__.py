# SPDX-License-Identifier: Apache-2.0
"""One simulation with two faces, on a simulated clock.

``promises`` proves that services keep their promises under faults, on small
deployments: ``python -m cellsched.simulator``. ``capacity`` measures large
deployments: ``cellsched simulate``. Both run code of production, and a seed
determines each run to the byte.

``engine`` has the processes, the clock and the locks of both. ``servers`` has
models of the servers of claim stores.

Add a fault of services, messages or databases to ``promises.faults``, a fault
of hosts and control planes to ``capacity.faults``, and the model of a server
to ``servers``.
"""

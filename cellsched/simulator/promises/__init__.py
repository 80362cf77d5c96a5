# SPDX-License-Identifier: Apache-2.0
"""Promises of the project under faults: ``python -m cellsched.simulator``.

The services are those of production, made by ``cellsched.wiring``. Their
clocks, transports, databases and claim stores are simulated. A seed determines
the order of all events: which activity runs next, which message arrives, which
process is killed and which request fails. A run that violates an invariant can
so be repeated.

``simulation`` is one run and ``harness`` the setup that runs share. ``stores``
and ``network`` simulate databases, claim stores and brokers. ``processes`` are
killed and restarted. ``faults`` are drawn from the seed, as are the requests
of users in ``workload``. ``invariants`` are checked after each step.
"""

# SPDX-License-Identifier: Apache-2.0
"""Seeded simulation of a whole deployment under faults.

The services are those of production, made by ``cellsched.wiring``. Their
clocks, transports, databases and claim stores are simulated. A seed determines
the order of all events: which thread runs next, which message arrives, which
process is killed and which request fails. A run that violates an invariant can
so be repeated.

``simulation`` is one run and ``harness`` the setup that runs share.
``scheduler`` runs one thread at a time. ``stores``, ``network`` and ``clocks``
simulate databases, brokers and clocks with their locks; ``claim_servers`` and
``servers`` simulate the servers of claim stores. ``processes`` are killed and
restarted. ``faults`` are drawn from the seed, as are the requests of users in
``workload``. ``invariants`` are checked after each step.
"""

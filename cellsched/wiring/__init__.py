# SPDX-License-Identifier: Apache-2.0
"""Construction of services from a configuration.

Only this package makes connections, threads and random sources. Production,
tests, benchmarks and demonstrations use the same code, with different
configurations and components.

``base`` and ``components`` hold the objects that services share; each is made
when it is first used. Each service has a module, which imports only what the
service needs. ``services`` imports all of them, for programs that run several
services in one process.
"""

from cellsched import silence_eventlet  # noqa: F401

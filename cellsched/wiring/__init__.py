# SPDX-License-Identifier: Apache-2.0
"""The one place that wires: from configuration to services.

Here, and nowhere else, connections, threads and random sources are made.
Production, tests, benchmarks and demonstrations differ in the configuration
and the parts that they hand over, and in nothing else.

Each service has a module, which imports what that service needs and nothing
else; ``services`` has all of them, for who runs several in one process.
"""

from cellsched import silence_eventlet  # noqa: F401

# SPDX-License-Identifier: Apache-2.0
"""Messages between services: transports, clients and servers.

The clients of all services are here, so that no service imports another. To
add a client, write a module with the service's name, its topic, its namespace,
the version of its server, and a subclass of
:class:`cellsched.rpc.client.Client`.
"""

from cellsched import silence_eventlet  # noqa: F401

# SPDX-License-Identifier: Apache-2.0
"""Messages between services: transports, clients and servers.

Here are the clients of all services, so that no service imports another. What
a service does with a message is its own business. To add a client, write a
module of the service's name with its topic, its namespace, the version that a
server offers, and a subclass of :class:`cellsched.rpc.client.Client`.
"""

from cellsched import silence_eventlet  # noqa: F401

# SPDX-License-Identifier: Apache-2.0
"""The parts of a process: each is made when it is first needed.

A process makes them after it has forked, and what runs in it shares them.
``process`` has what every process may need; a service adds what it alone
reads, so that it imports nothing that it does not use.
"""

from cellsched import silence_eventlet  # noqa: F401

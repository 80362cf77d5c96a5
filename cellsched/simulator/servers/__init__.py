# SPDX-License-Identifier: Apache-2.0
"""Models of servers on which claim stores keep claims.

Each answers the requests of its store as the server does, one at a time, and
has no clock, no threads and no connections. All that it knows can be copied.
"""

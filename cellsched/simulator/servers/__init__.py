# SPDX-License-Identifier: Apache-2.0
"""Models of the servers of claim stores.

A model answers the requests of its store like the server, one at a time. It
has no clock, threads or connections, and its state can be copied.
"""

# SPDX-License-Identifier: Apache-2.0
"""Payloads of notifications, as plain data.

Payloads are made from objects as they travel, so that what is no object here
is read like what is. A payload names each field that it has: what is not
named does not get out, and what the source does not know is None.
"""

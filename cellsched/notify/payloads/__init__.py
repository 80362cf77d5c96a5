# SPDX-License-Identifier: Apache-2.0
"""Payloads of notifications, as plain data.

A payload lists its fields explicitly: no other field is sent, and a field that
the source does not have is None. Sources are read in their wire form, so that
unknown objects work too.
"""

# SPDX-License-Identifier: Apache-2.0
"""The decision: filter the hosts for a request and rank them."""

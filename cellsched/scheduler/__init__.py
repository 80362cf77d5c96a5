# SPDX-License-Identifier: Apache-2.0
"""The scheduler: select a host for a request, and explain the decision.

``decision`` decides and ``explanation`` gives the reasons. Both are pure,
except for the recorder, which stores explanations. ``selection`` selects hosts
by a decision and claims them. ``service`` answers over RPC with a driver of
``drivers``.
"""

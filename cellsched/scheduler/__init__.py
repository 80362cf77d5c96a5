# SPDX-License-Identifier: Apache-2.0
"""The scheduler: which host takes a request, and why not the others.

``decision`` decides and ``explanation`` says why; both are pure but for the
recorder, which keeps explanations. ``placement`` chooses by a decision and
claims what was chosen. ``service`` answers over RPC, by a driver of
``drivers``.
"""

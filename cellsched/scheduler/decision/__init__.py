# SPDX-License-Identifier: Apache-2.0
"""The decision: filter the hosts for a request and rank them.

``pipeline`` runs the stages, filters and weighers. ``mandatory_stages``,
``required_traits``, ``capacity`` and ``provider_groups`` have the stages of
every pipeline, and ``ranking`` orders the hosts that pass. ``allocation``
divides a request among the providers of a host.
"""

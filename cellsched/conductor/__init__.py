# SPDX-License-Identifier: Apache-2.0
"""The conductor: builds that outlive whoever asked for them.

``service`` answers RPC, ``recoverer`` takes up what was left lying, ``tasks``
has the work itself, which any service may embed.
"""

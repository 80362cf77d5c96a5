# SPDX-License-Identifier: Apache-2.0
"""The decision: which hosts may take a request, and in which order."""

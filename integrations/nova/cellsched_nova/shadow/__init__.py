# SPDX-License-Identifier: Apache-2.0
"""A comparison of the scheduler with nova-scheduler, side by side.

The package claims nothing, and answers no request.
"""

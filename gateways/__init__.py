"""Carrier gateways: adapters that read real platforms, and the simulator that stands in for them.

An adapter turns one platform's answers into readings of one shape. It knows the platform's addresses,
units and credentials, and nothing about schedules, slots, databases or brokers.
"""

"""Talking to other nodes: a sans-I/O core, and what drives it over the network.

Brokers use it between themselves and to the controllers, tools and Spark in its blocking form (`blocking`); `registry`
asks for schemas. It never imports the server's rooms.
"""

"""What a node serves over HTTP beside Kafka's protocol: the schema registry, and topics as REST.

It runs in a process of its own, which the first connection to its port starts (`ottla.cli.gateway`), and reaches the
cluster as any client does, so that it can also stand beside a cluster that is not Ottla's (`ottla registry`).

    rest/           records by HTTP: produce, consume, server-sent events
    registry/       what it serves, without I/O: state, operations, routes; and what drives it
    http            what both have in common: queries and refusals
    door            who may come in; the console's too
    pool            clients that block, in threads; the console's too
    app             HTTP: bounded requests in, JSON out
    server          the process: a listening socket, the application, the end
"""

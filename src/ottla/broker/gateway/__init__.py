"""The gateway listener: a port on which one node stands for the whole cluster (`ottla.gateway.listeners`).

Kafka's clients learn from the cluster where each broker is, and go there themselves. Behind a forwarded port, a NAT or
a load balancer they cannot. On a gateway listener the node says that it leads and coordinates everything, and hands on
what is for others:

    presenting  what clients are told: one broker, which leads every partition and coordinates every group
    routing     which node each part of a request is for, and how the answers become one; without I/O
    speaking    for whom a connection to another node speaks: rights and quotas are the client's
    lanes       one client's connections to the nodes, each its own, so that the order of requests is kept
    fetching    fetches that wait at several leaders, of which the first that has something ends the wait
    dispatcher  drives them

What this node answers alone it hands on to nobody, bytes as they are. What cannot be reached is answered by this node,
which says the truth: that it is not the leader, or not the coordinator. Clients ask again.
"""

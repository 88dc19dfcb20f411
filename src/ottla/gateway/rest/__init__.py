"""Records over HTTP: produce, consume, and tail a topic, with Confluent's paths (REST Proxy v3) where they exist.

It is a client of the cluster, so that a request may be sent to any node and reaches the leaders from there.

    records     JSON to records and back, without I/O
    cluster     what is asked of the cluster, over the blocking client: a `Lane` for one thread
    api         requests to lanes; the bounds on what one may cost
    tail        a topic as server-sent events
    openapi     the description that `/openapi.json` and `/docs` give
"""

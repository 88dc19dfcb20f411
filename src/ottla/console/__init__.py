"""The console: a cluster in the browser, any Kafka's. A process of its own, which asks the cluster as a client does.

    server, __main__   the process: a socket that somebody opened, the pages, an end
    guard              who may come in: loopback, sites, passwords
    console            what all pages share: workers, poller, watches, the registry, may anything be changed?
    workers            threads, each with a client of its own
    poller, history    one look at the cluster every few seconds, for all pages; what was measured lately
    nodes              what Ottla's own nodes tell over HTTP: replicas and metrics
    replication, picture, replica_watch   the live picture of a partition: its state, its drawing, who looks
    reading, decoding, filters, producing   records
    markup, units, chart, tables   what pages are made of: text is always text
    pages/             one module a subject

NiceGUI serves the pages and carries what changes to them; what they show is drawn by pure functions, and moved into the
page by `assets/console.js` so that the keyboard's focus stays where it is. Nothing of the server is imported here.
"""

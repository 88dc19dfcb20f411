"""What an operator asks of a cluster, any Kafka's: typed questions, and answers that are plain values.

One module a subject: `topics`, `offsets`, `configs`, `groups` and `seeking`, `cluster` and `reassignment`, `replicas`
and `log_dirs`, `transactions`, `acls`, `users`, `quotas`. Each function takes a `BlockingClient`, which its caller
owns, asks, and returns frozen values, or raises `KafkaError` with one sentence. Nothing here remembers anything,
prints, or belongs to the server. Driven by the command line and by the console; one client is for one thread at a time.
"""

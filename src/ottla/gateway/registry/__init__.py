"""The schema registry: Confluent's REST API, on Confluent's records in the topic `_schemas`.

A state machine on a partition. Every registry reads the partition from its beginning and *replays* the records into its
`state`; whoever writes *generates* records from the newest state, appends them, and answers when they have come back
to it through the log. So any registry answers what is asked, and after a restart knows what it knew.

    refusals     the errors of the API, with their codes
    stored       records: keys and values as JSON
    subjects     names of subjects, and the contexts in them
    state        what the records say: subjects, versions, ids, levels, modes (replay)
    operations   what a request would change: records and an answer (generate)
    answers      what is read: each a function of the state
    routes       which request asks for which of them
    writing      who may append (transactions fence the others), and when an answer is due
    topic        the partition itself, over the blocking client

**One writer at a time.** Two registries must not give one id away twice. Whoever wants to write takes the transactional
id of the registry, which fences the writer before it, reads on to the end of the log, and only then decides; what it
appends is one transaction. A writer that was fenced meanwhile hears so when it appends, takes the id back, and decides
anew. Kafka's own transactions are the whole of the agreement: there is no leader to find and nothing to forward.
"""

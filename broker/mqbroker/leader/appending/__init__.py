"""The appending of messages to the log.

``in_flight``  what is on its way, and who gets its outcome
``entries``    appends to the log, and answers when an entry is applied
``times``      how long entries take (pure)
``together``   sends that become one entry
``append``     appends messages, each once, even if a producer repeats the send
``resends``    is a repeated key a retry, or another send? (pure)
``drafts``     batches that wait for their place in the log
"""

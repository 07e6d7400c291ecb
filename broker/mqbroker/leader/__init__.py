"""What only the leader does: it decides what goes into the log, and in which form.

``role``            whether this replica leads, and who does (pure)
``log``             what the broker needs of the replicated log
``entries``         the way into it: what comes of an entry, and who is told
``append``          messages, each once, however often a producer asks
``resends``         is a repeated key a retry, or another send? (pure)
``drafts``          batches that wait for their place
``assignments``     queue offsets and store times, handed out as places are known (pure)
``definitions``     topics and groups
``delays``          messages on their way to where they wait (pure)
``deliveries``      messages that have waited long enough
``transactions``    half messages, and how they end
``offset_commits``  commits of offsets, many to one entry
``outcome``         waits for a change of the state
"""

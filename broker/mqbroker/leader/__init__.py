"""What only the leader does: it decides which entries go into the log.

``role``            whether this replica leads, and who does (pure)
``log``             what the broker needs of the replicated log
``entries``         appends to the log, and answers when an entry is applied
``once``            appends what named producers write, each write once
``append``          appends messages, each once, even if a producer repeats the send
``resends``         is a repeated key a retry, or another send? (pure)
``drafts``          batches that wait for their place in the log
``noted``           messages that come with a note of what else they do
``assignments``     queue offsets and store times, handed out as places are known (pure)
``lock_clock``      the time by which queue locks end (pure)
``definitions``     topics and groups
``waiting``         messages that wait for their time
``transactions``    half messages, and how they end
``offset_commits``  commits of offsets, many in one entry
``outcome``         waits for a change of the state
"""

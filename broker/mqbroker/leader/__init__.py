"""The leader's part of a broker: it decides which entries go into the log.

``role``            whether this replica leads, and who does (pure)
``log``             what the broker needs of the replicated log
``appending``       how messages get into it
``assignments``     queue offsets and store times, handed out as places are known (pure)
``lock_clock``      the time by which queue locks end (pure)
``locking``         which locks are asked for, and when ended ones are forgotten
``definitions``     topics and groups
``announcements``   what name servers know, and the answers that wait for that (pure)
``waiting``         messages that wait for their time
``transactions``    half messages, and how they end
``staged``          what becomes of those that were staged for a batch (pure)
``offset_commits``  commits of offsets, many in one entry
``once``            appends what named producers write, each write once
"""

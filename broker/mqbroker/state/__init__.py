"""The replicated state of a broker group: a function of the log, and of nothing else.

``machine``        applies entries to all of the below
``control``        changes of the state that are not messages (pure)
``memory``         the state in memory, and how those change it (pure)
``moves``          messages that leave one of the broker's own queues for their real topic (pure)
``waiting``        messages of one queue that wait (pure)
``topics``         topics, and the rules by which they are made (pure)
``attributes``     their named settings (pure)
``groups``         what is kept for consumer groups: configs, offsets, locks
``dedup``          which appends are in the log already (pure)
``producers``      producers with a name, and what they wrote last (pure)
``decisions``      which batches are decided, and what is staged for them (pure)
``once``           entries with outputs and the offsets of their inputs (pure)
``shares``         how a table's rows are shared out among their owners (pure)
``aside``          entries that have no effect, and why (pure)
``derived``        what is made from the log: consume queues, key index, the order of what waits
``rows``           its tables as rows of bytes, for a snapshot
``saved``          the state as bytes, so that a restart replays only later entries
``watching``       who hears what was applied
"""

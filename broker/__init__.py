"""The broker: topics, queues and consumer groups over one replicated log.

General layout
--------------
The replicated state, a function of the log: ``machine`` applies entries to ``topics``,
``subscriptions``, ``offsets``, ``locks``, ``dedup`` and ``consume_queue``. What an entry of
messages adds: ``indexing``; what else an entry can say: ``control``. ``snapshot`` saves it.

The leader's own: ``assignments`` hands out queue offsets and store times, ``drafts`` are batches
waiting for their place, ``append`` puts each into the log once, ``definitions`` makes topics and
groups, ``offset_commits`` gathers commits. ``role`` says whether this replica leads.

Requests: ``dispatch`` finds the handler: ``produce`` and ``send`` (messages in), ``pull`` with
``queue_reading``, ``filters`` and ``held_pulls`` (messages out), ``send_back``, ``lookups``,
``clients`` with ``membership``, ``admin_topics``, ``admin_groups``, ``admin_broker``.

The process: ``app``, ``broker`` (the wiring), ``registration``, ``config``, ``__main__``.
"""

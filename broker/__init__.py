"""The broker: topics, queues and consumer groups over one replicated log.

General layout
--------------
``state/``     what all replicas agree on, a function of the log
``leader/``    what only the leader does: offsets, drafts, appends, definitions
``requests/``  the handlers, a module a family of codes
``sql/``       SQL92 filters: a condition over a message's properties
``broker``     a broker without its sockets: the handlers wired to a replica's state
``app``        the process: ledger, listener, ``registration`` with the name servers, ``proving``
               to them who it is, the ``announcements`` that they have heard, snapshots
``testing/``   the real broker over a ledger in memory

``config`` and ``limits`` are the settings and the bounds, ``refusal`` what a client is told when
something is not done.
"""

"""Requests of clients, and their answers.

``dispatch``     finds the handler of a code
``later``        answers that wait for an outcome
``needs``        what a code needs before it is answered, such as a leader
``sending``      requests that store messages
``reading``      requests that read messages
``popping``      requests that hand messages out for a time
``groups``       clients, and the progress of groups
``admin``        operators' tools
``forwarding``   passes tools' changes from a follower to the leader
``unsupported``  why some codes have no handler
``rights``       what requests need that name it in their body, or by what is stored (pure)
``door``         who may change others' work: by address, or with a proof
``looking``      what rights depend on beside a request
``held_pulls``   pulls that wait for messages, and members that take queues over (pure)
``filters``      which messages of a queue a consumer wants (pure)
``permissions``  what topics, groups and the broker group allow (pure)
``core``         what all handlers work with
``replies``      answers that are sent after the handler returned
"""

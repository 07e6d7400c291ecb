"""Finds, in one pass over all inputs, which messages and queues need a closer look.

In a good run nearly all do not, and to see that takes no sentence about any of them: numbers are
enough, and numpy. Whatever is read is cut into parts (of a history, of a log), and each task turns
one into **statements**: who says what of which message, as fixed-width numbers. They go to the task
that has this message, as packets of bytes, which cost Spark next to nothing. That task makes the
**digest**, one row a message. The places in queues that it names go on to the tasks that have these
ranges of these queues, which look whether each follows on the one before. And each segment of a
log tells whether all replicas hold it alike.

What does not simply agree is suspect or doubtful: its testimony is read again, with all names, and
judged exactly (:mod:`mqspark.judge`). The screening decides nothing, and passes over nothing that a
judge would find.

``parts``       what one task reads
``testimony``   what events and records say of messages, with names
``hashing``     names as numbers (pure)
``statements``  the same as numbers (pure)
``packets``     rows of numbers as bytes
``digest``      one row a message, and which are suspect (pure)
``queues``      ranges of queues, and which queues are doubtful (pure)
``readings``    what groups got, and which readings are doubtful (pure)
``changes``     what a log's changes of state say: of groups, tools, lives of topics (pure)
``large``       large bodies and their parts (pure)
``lines``       which lines say nothing, and whose clock fell (pure)
``logs``        whether replicas hold one log, and other topics' queues (pure)
``tasks``       what Spark's workers run
``screened``    starts them, and holds what they found
"""

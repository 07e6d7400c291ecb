"""Sending: from a message to its place in the log.

``producer``      the public class
``sends``         its calls for single messages
``publishing``    which queue a message goes to (pure)
``topics``        the queues of each topic, once they are looked up
``encoding``      makes the record that will lie in the log
``chunks``        messages that are encoded, kept account of and settled together
``outbox``        messages whose outcome is not known yet
``pending``       such a message, as `send_nowait` returns it
``measuring``     what a producer counts, for whoever collects it
``measured_outbox``  counts what is refused
``batching``      which messages go together, and when (pure)
``batch``         one batch, and each message's place in it (pure)
``sending``       sends batches to the leaders of broker groups
``naming``        one instance of a program, which the next one replaces
``replies``       requests that wait for a reply
``waiting``       messages that wait for their time, or for the end of a transaction
"""

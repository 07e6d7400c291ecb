"""Sending: from a message to its place in the log.

``producer``      the face
``publishing``    which queue a message goes to (pure)
``encoding``      the record that will lie in the log
``outbox``        messages whose outcome is not known yet
``pending``       one of them, as `send_nowait` hands it back
``batching``      which messages go together, and when (pure)
``batch``         one batch, and each message's place in it (pure)
``exchange``      what is asked for a batch, and what the answer says (pure)
``sender``        sends one broker group its batches, whoever leads it
``delays``        messages that wait for their time (pure)
``recall``        takes one of them back
``transactions``  messages that are seen if some work is done
``replies``       requests that wait for a reply
"""

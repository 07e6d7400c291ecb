"""Sending batches to the leaders of broker groups.

``sender``    sends batches to the leader of one broker group
``senders``   the senders of all broker groups
``exchange``  the request for a batch, and its answer (pure)
"""

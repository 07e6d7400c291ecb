"""Requests that put messages into the log.

``send``           stock clients' sends
``batch_properties``  the properties of a batch's messages (pure)
``once``           what producers with a name write, and decide
``claims``         whose the names of producers are
``produce``        our producers' batches of finished records
``send_back``      stores a message that a consumer could not handle once more
``keys``           how many keys the messages of one request may have (pure)
``copies``         the properties of copies, which always fit (pure)
``retries``        when such a message is tried again, and when it is given up (pure)
``transactions``   commits and rolls back half messages
``staged``         ends half messages that were staged for a batch and left
``homes``          asks the broker group that decides a batch
``recall``         takes a delayed message back
``request_reply``  passes replies on to the clients that asked
"""

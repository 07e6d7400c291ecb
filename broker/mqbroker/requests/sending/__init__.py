"""Requests that put messages into the log.

``send``           stock clients' sends
``produce``        our producers' batches of finished records
``send_back``      what a consumer could not handle
``retries``        when that comes again, and when it is given up (pure)
``transactions``   how half messages end
``recall``         takes a delayed message back
``request_reply``  passes replies on to who asked
"""

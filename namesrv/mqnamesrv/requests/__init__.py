"""The requests of brokers and clients: what each may ask, and what it is answered.

``dispatch``     one small method per code
``kv_requests``  those for the key-value config
``users``        users as broker groups tell them, and what they may ask
"""

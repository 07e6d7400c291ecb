"""The parts of a name server that outlive its process.

``kv``       the key-value config (pure)
``kv_file``  the key-value config on disk
``away``     the queues of groups that are away
"""

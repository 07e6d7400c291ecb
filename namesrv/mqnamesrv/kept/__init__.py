"""What a name server keeps over its end.

``kv``       the key-value config (pure)
``kv_file``  the key-value config on disk
``away``     the queues of groups that are away
"""

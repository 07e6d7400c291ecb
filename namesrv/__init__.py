"""The name server: which broker serves which queues of which topic, right now.

Layout: `topics` and `routes` are the route table, `door` decides who may change what, and `kv` is
the key-value config, all pure; `kv_file` makes the latter durable; `dispatch` turns requests into
calls on them; `app` gives them a clock and a socket; `config` and `__main__` are the command
`mqnamesrv`.

Name servers know nothing of each other. Every broker registers with each of them and a client
asks any one, so their tables agree as far as the brokers' registrations arrive.
"""

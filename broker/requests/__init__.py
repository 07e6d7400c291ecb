"""What clients ask, and what they are answered.

`dispatch` finds the handler of a code; followers pass tools' changes on by `forwarding`, and
`unsupported` says why some codes have none. Messages in: `produce` and `send`, `send_back` with
`retries`, `transactions`, `recall`; `request_reply` passes answers on. Messages out: `pull` with
`queue_reading`, `filters` and `held_pulls`, `lookups`, `queries`. Who is there: `clients` with
`membership`; who reads what, and from where: `readers`, `resets`; what only a client knows:
`relays`. Operators: `admin_topics`, `admin_groups`, `admin_broker`, `progress`. `core` is what they
all work with, `replies` and `rates` answer and count.
"""
